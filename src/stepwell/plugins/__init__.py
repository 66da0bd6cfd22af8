"""Register additions of plug-ins and users: operators, targets, rewrites."""
