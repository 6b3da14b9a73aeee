"""Expected time: what a runtime makes of a device, kernel by kernel."""
