"""Why clients were selected: one decision explained, the decisions of a run diagnosed, and the clients that took part."""
