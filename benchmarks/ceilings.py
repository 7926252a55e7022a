def figures(quick):
    return iter(())
