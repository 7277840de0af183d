"""Write ten small tables as nasty as real ones, for ``gpflow-pep compare``.

    python -m examples messy_tables tables
    gpflow-pep compare tables/weather.csv --target power --inducing 20 --folds 3 --out weather

All are generated, 150 to 300 rows each, and each has another fault; what ought to be
recognised is printed beside the command that compares models on it. The Excel file
needs openpyxl.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd


class MessyTable(NamedTuple):
    """A table: its file, its target, what ought to be recognised, and what writes it."""

    file: str
    target: str
    statement: str
    write: Callable[[Path, np.random.Generator], None]


def write_sales(path: Path, rng: np.random.Generator) -> None:
    region = rng.choice(["North", "South", "West"], 160)
    price = rng.uniform(2.0, 9.0, 160)
    units = (
        900.0
        - 60.0 * price
        + 150.0 * (region == "North")
        + 40.0 * rng.standard_normal(160)
    )
    day = pd.Timestamp("2023-01-02") + pd.to_timedelta(np.arange(160), "D")
    table = pd.DataFrame(
        {"day": day, "region": region, "price": price.round(2), "units": units.round()}
    )
    with pd.ExcelWriter(path, engine="openpyxl") as book:
        pd.DataFrame().to_excel(book, sheet_name="Cover")
        table.to_excel(book, sheet_name="Sales", startrow=3, index=False)
        sheet = book.sheets["Sales"]
        sheet["A1"], sheet["A2"] = "Sales report 2023", "All shops, preliminary"


def write_airfoil(path: Path, rng: np.random.Generator) -> None:
    frequency = rng.choice([800, 1000, 1250, 1600, 2000, 2500, 4000], 200)
    angle = rng.choice([0.0, 1.5, 4.0, 7.3], 200)
    speed = rng.choice([31.7, 39.6, 71.3], 200)
    thickness = rng.uniform(0.0004, 0.05, 200).round(6)
    noise = 130.0 - 4.0 * np.log2(frequency / 1000.0) ** 2 - 0.3 * angle + 0.08 * speed
    noise += -120.0 * thickness + rng.standard_normal(200)
    columns = {
        "f": frequency,
        "a": angle,
        "u": speed,
        "d": thickness,
        "noise": noise.round(3),
    }
    pd.DataFrame(columns).to_csv(path, sep="\t", header=False, index=False)


def write_wind(path: Path, rng: np.random.Generator) -> None:
    hours = np.arange(220) * 5.5
    speed = rng.gamma(3.0, 2.5, 220)
    mass = rng.uniform(8.0, 20.0, 220)
    drift = 3.0 * speed - 0.8 * mass + 4.0 * np.sin(2.0 * np.pi * hours / 24.0)
    drift += rng.standard_normal(220)
    time = pd.Timestamp("2023-01-31 13:30") + pd.to_timedelta(hours, "h")
    columns = {
        "time": time.strftime("%m/%d/%Y %I:%M %p"),
        "wind": [f"{value:.1f} m/s" for value in speed],
        "mass": [f"{value:.1f} kg" for value in mass],
        "drift": [f"{value:.2f}" for value in drift],
    }
    table = pd.DataFrame(columns).apply(lambda column: column.str.replace(".", ","))
    table.loc[rng.choice(220, 9, replace=False), "wind"] = ""
    table.to_csv(path, sep=";", index=False)


def write_weather(path: Path, rng: np.random.Generator) -> None:
    temperature = rng.normal(12.0, 8.0, 240)
    sun = rng.uniform(0.0, 14.0, 240)
    humidity = np.clip(rng.normal(65.0, 15.0, 240), 5.0, 100.0)
    power = 3.0 * sun - 0.01 * (temperature - 15.0) ** 2 - 0.05 * humidity
    columns = {"temperature": temperature, "sun": sun, "humidity": humidity}
    table = pd.DataFrame(
        {**columns, "power": power + 0.8 * rng.standard_normal(240)}
    ).round(1)
    for name, number in (("temperature", -999.0), ("sun", -99.0), ("humidity", 9999.0)):
        table.loc[rng.choice(240, 14, replace=False), name] = number
    table.to_csv(path, index=False)


def write_survey(path: Path, rng: np.random.Generator) -> None:
    smoker = rng.uniform(size=150) < 0.4
    age = rng.integers(18, 80, 150)
    city = rng.choice(["Leeds", "LEEDS", "leeds", "York", "York "], 150)
    ill = rng.uniform(size=150) < 1.0 / (1.0 + np.exp(4.0 - 0.06 * age - 1.8 * smoker))
    yes = rng.choice(["Yes", "Yes", "yes", "YES "], 150)
    no = rng.choice(["No", "no"], 150)
    columns = {"smoker": np.where(smoker, yes, no), "city": city, "age": age}
    columns["weight"] = rng.normal(75.0, 12.0, 150).round(1)
    table = pd.DataFrame({**columns, "ill": np.where(ill, yes[::-1], no[::-1])})
    copies = table.sample(60, random_state=1)
    table = pd.concat([table, copies]).sample(frac=1.0, random_state=2)
    table.to_csv(path, index=False)


def write_leak(path: Path, rng: np.random.Generator) -> None:
    area = rng.uniform(30.0, 140.0, 180)
    rooms = rng.integers(1, 6, 180)
    rent = 200.0 + 9.0 * area + 40.0 * rooms + 60.0 * rng.standard_normal(180)
    columns = {"area": area.round(1), "rooms": rooms, "tax": (0.19 * rent).round(1)}
    pd.DataFrame({**columns, "rent": rent.round(2)}).to_csv(path, index=False)


def write_pressure(path: Path, rng: np.random.Generator) -> None:
    depth = rng.uniform(0.0, 50.0, 200)
    salt = rng.normal(35.0, 1.0, 200)
    pressure = (
        101.3 + 10.05 * depth + 3.0 * (salt - 35.0) + 2.0 * rng.standard_normal(200)
    )
    table = pd.DataFrame(
        {"depth": depth.round(2), "salt": salt.round(2), "pressure": pressure}
    )
    table["pressure"] = table["pressure"].round(1)
    table.loc[77, "pressure"] *= 1000.0  # in other units
    table.to_csv(path, index=False)


def write_auctions(path: Path, rng: np.random.Generator) -> None:
    age = rng.uniform(1.0, 300.0, 250)
    size = rng.lognormal(0.0, 0.9, 250)
    fame = rng.choice(["unknown", "known", "famous"], 250, p=[0.5, 0.35, 0.15])
    log_price = 3.5 + 0.006 * age + 1.1 * np.log(size) + 3.2 * (fame == "famous")
    price = np.exp(log_price + 0.9 * (fame == "known") + 0.8 * rng.standard_normal(250))
    columns = {
        "age": age.round(),
        "size": size.round(2),
        "artist": fame,
        "price": price.round(2),
    }
    pd.DataFrame(columns).to_csv(path, index=False)


def write_calls(path: Path, rng: np.random.Generator) -> None:
    hour = rng.integers(0, 24, 260)
    staff = rng.integers(1, 9, 260)
    rate = np.exp(-1.2 + 1.6 * np.sin(np.pi * hour / 24.0) ** 2 + 0.05 * staff)
    calls = rng.poisson(rate) * (rng.uniform(size=260) < 0.7)
    weather = rng.uniform(-5.0, 30.0, 260).round(1)
    columns = {"hour": hour, "staff": staff, "temperature": weather, "calls": calls}
    pd.DataFrame(columns).to_csv(path, index=False)


def write_fraud(path: Path, rng: np.random.Generator) -> None:
    amount = rng.lognormal(3.5, 1.0, 300)
    hour = rng.uniform(0.0, 24.0, 300)
    score = (
        np.log(amount)
        + 1.2 * np.cos(2.0 * np.pi * hour / 24.0)
        + rng.standard_normal(300)
    )
    fraud = score >= np.sort(score)[-12]
    columns = {"amount": amount.round(2), "hour": hour.round(2)}
    table = pd.DataFrame({**columns, "kind": np.where(fraud, "fraud", "regular")})
    table.to_csv(path, index=False)


TABLES = (
    MessyTable(
        "sales.xlsx",
        "units",
        "The second sheet is read, below two lines of title.",
        write_sales,
    ),
    MessyTable(
        "airfoil.dat",
        "x4",
        "There are no names, and the first line is a row.",
        write_airfoil,
    ),
    MessyTable(
        "wind.csv",
        "drift",
        "Times have AM and PM, and numbers have the units m/s and kg.",
        write_wind,
    ),
    MessyTable(
        "weather.csv",
        "power",
        "-999, -99 and 9999 stand for missing values.",
        write_weather,
    ),
    MessyTable(
        "survey.csv",
        "ill",
        "Yes, yes and YES are one class; 60 rows are copies.",
        write_survey,
    ),
    MessyTable("leak.csv", "rent", "The tax is the target in disguise.", write_leak),
    MessyTable(
        "pressure.csv",
        "pressure",
        "Row 77 has a target a thousand times too large.",
        write_pressure,
    ),
    MessyTable(
        "auctions.csv",
        "price",
        "Prices over four decades are skewed, and none is wrong.",
        write_auctions,
    ),
    MessyTable(
        "calls.csv",
        "calls",
        "Counts with many zeros are numbers, and none is wrong.",
        write_calls,
    ),
    MessyTable("fraud.csv", "kind", "One class has only 4% of the rows.", write_fraud),
)


def write_tables(folder: Path) -> None:
    """Write all of them into a folder, which is made if it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, table in enumerate(TABLES):
        table.write(folder / table.file, np.random.default_rng(seed))


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(f"Got {len(sys.argv) - 1} names of folders, expected one:\n{__doc__}")
    folder = Path(sys.argv[1])
    write_tables(folder)
    for table in TABLES:
        print(table.statement)
        print(f"  gpflow-pep compare {folder / table.file} --target {table.target}")
