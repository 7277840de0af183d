def summarise(table, out):
    print(
        table.groupby(["experiment", "data", "M", "method", "alpha"], dropna=False)
        .mean(numeric_only=True)
        .to_string()
    )
