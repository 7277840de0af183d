"""Write a table with every fault that tables have, for ``gpflow-pep compare``.

    python -m examples messy_table flats.csv new_flats.csv
    gpflow-pep compare flats.csv --target price --out flats
    gpflow-pep predict flats/model new_flats.csv --keep id --out predictions.csv

240 flats and their prices, generated: semicolons, decimal commas, letters of Latin-1,
an index without a name, an ID, dates, words, remarks, counts, gaps, a column that is
constant. The second file has 20 others without prices, with other columns in another
order, and other separators.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

REGIONS = {"Nord": 0.0, "Süd": 60.0, "Ost": -30.0, "Köln": 20.0}


def flats(num_rows: int, seed: int) -> pd.DataFrame:
    """What is known of some flats, with gaps, and their prices in thousands."""
    rng = np.random.default_rng(seed)
    area = rng.uniform(30.0, 140.0, num_rows)
    rooms = rng.integers(1, 6, num_rows)
    region = rng.choice(list(REGIONS), num_rows)
    days = rng.integers(0, 1000, num_rows)
    price = 40.0 + 2.2 * area + 0.004 * (area - 80.0) ** 2 + 9.0 * rooms
    price += np.array([REGIONS[name] for name in region]) + 0.04 * days
    price *= np.exp(0.06 * rng.standard_normal(num_rows))  # dearer flats vary more
    sold = pd.Timestamp("2021-03-01") + pd.to_timedelta(days, "D")
    table = pd.DataFrame(
        {
            "id": rng.permutation(num_rows) + 1000,
            "region": region,
            "area": np.round(area, 1),
            "rooms": rooms,
            "heating": rng.choice(["gas", "oil", "heat pump"], num_rows),
            "sold": sold.strftime("%d.%m.%Y"),
            "visits": rng.poisson(3.0, num_rows),
            "remark": [f"flat no. {number}, quiet" for number in range(num_rows)],
            "country": "DE",
            "price": np.round(price, 1),
        }
    )
    for name in ("area", "heating"):
        table.loc[rng.choice(num_rows, num_rows // 12, replace=False), name] = np.nan
    table.loc[rng.choice(num_rows, 3, replace=False), "price"] = np.nan
    return table


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(f"Got {len(sys.argv) - 1} names of files, expected two:\n{__doc__}")
    old, new = map(Path, sys.argv[1:])
    flats(240, seed=0).to_csv(old, sep=";", decimal=",", encoding="latin-1")
    others = flats(20, seed=1).drop(columns=["price", "remark"])
    others[sorted(others, reverse=True)].to_csv(new, index=False)
