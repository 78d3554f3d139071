"""Code, classes and objects of users: their plug-ins, what identifies them, what they import, and the errors they raise."""
