"""From ordered events to windows, and to the instances that match them."""
