"""What plug-ins and users add: operators, targets, rewrites, and the registry of them."""
