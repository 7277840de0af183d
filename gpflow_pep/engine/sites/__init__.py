"""Sites, the posterior that they make, and their fixed point."""
