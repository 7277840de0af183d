"""Tables of cases that several test files share."""
