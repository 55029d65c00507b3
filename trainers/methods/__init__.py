"""What can be trained: one file a method, one line here."""

from trainers.methods.contrastive import ELK, HIB, InfoNCE, MCInfoNCE
from trainers.methods.losspred import LossPred
from trainers.methods.method import Method
from trainers.methods.siamese import SimSiam, VISimSiam
from trainers.methods.supervised import Supervised

METHODS: dict[str, type[Method]] = {
    "visimsiam": VISimSiam,
    "simsiam": SimSiam,
    "mcinfonce": MCInfoNCE,
    "infonce": InfoNCE,
    "hib": HIB,
    "elk": ELK,
    "losspred": LossPred,
    "supervised": Supervised,
}
