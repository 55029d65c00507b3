"""What can be trained: one file a method, one line here."""

from trainers.methods.method import Method
from trainers.methods.siamese import SimSiam, VISimSiam
from trainers.methods.supervised import Supervised

METHODS: dict[str, type[Method]] = {
    "visimsiam": VISimSiam,
    "simsiam": SimSiam,
    "supervised": Supervised,
}
