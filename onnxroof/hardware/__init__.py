"""Hardware profiles: what a device can do at best, and what it was measured to do."""
