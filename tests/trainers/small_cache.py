"""A cache of a few images."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from trainers.cache import FORMAT
from trainers.cache_writer import make_cache
from trainers.extract import CacheRecipe, Images
from trainers.methods.settings import Augmentation
from trainers.start import backbone_digest

CPU = torch.device("cpu")
RECIPE = CacheRecipe(Augmentation(scale=(0.5, 1.0)), seed=3, batch_size=8)
N = 24


def images(files, labels=True, losses=None):
    names = pa.array([f"c{i % 3}" for i in range(len(files))]) if labels else None
    keys = [f"k{i}" for i in range(len(files))]
    return Images(lambda: [lambda data=data: data for data in files], keys, names, losses)


def about(model, epochs=3, recipe=RECIPE, **columns):
    return {
        "kind": "cache",
        "format": FORMAT,
        "model": {"trunk": backbone_digest(model), "backbone": "test_resnet"},
        "made_from": {"name": "m.safetensors"},
        "preprocessing": model.spec.preprocessing.to_json(),
        "width": model.width,
        "recipe": recipe.to_json(),
        "epochs": epochs,
        "data": "files",
        "input": "digest",
        "columns": {"label": "label", "loss": None, **columns},
        "versions": {},
    }


def make(folder, model, files, epochs=3, recipe=RECIPE, **named):
    return make_cache(folder, about(model, epochs, recipe), images(files), model, recipe, workers=1, **named)


def note_targets(folder, digest):
    """Write a digest of labels and losses into the note of every epoch."""
    for path in folder.glob("epoch-*"):
        note = json.loads(pq.read_metadata(path).metadata[b"curate"])
        note["targets"] = digest
        table = pq.read_table(path).replace_schema_metadata({b"curate": json.dumps(note).encode()})
        pq.write_table(table, path, compression="NONE")
