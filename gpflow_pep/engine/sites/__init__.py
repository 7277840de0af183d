"""Sites, their posterior, and their fixed point."""
