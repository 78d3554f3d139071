"""Selection in Flower apps; skipped if Flower is not installed."""

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")
