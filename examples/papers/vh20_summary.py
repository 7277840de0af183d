"""Tables and figures of the results."""
def summarise(found, out): print(found)
