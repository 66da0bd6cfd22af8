"""Registration of what plug-ins and users add: operators, targets, rewrites."""
