"""What several tests of the comparison look at, made once."""

import pytest
from compare.small_comparison import small_comparison

from gpflow_pep.compare import export_saved_model


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The SavedModel of the small comparison at alpha 0.5."""
    folder = str(tmp_path_factory.mktemp("exported") / "saved_model")
    export_saved_model(folder, small_comparison().models[0.5])
    return folder
