"""The controller's end of one agent channel: requests out, replies and events in."""
