"""The runs that a report shows, as it reads them from run directories."""
