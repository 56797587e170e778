"""Pictures and pages, from run directories alone."""
