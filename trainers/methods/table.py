"""Every method by name; a class is imported when it is looked up, so that help can name all at no cost."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scoring.lookup import Lazy

if TYPE_CHECKING:
    from trainers.methods.method import Method

WHERE: dict[str, str] = {  # to add a method, add a line
    "visimsiam": "trainers.methods.siamese:VISimSiam",
    "simsiam": "trainers.methods.siamese:SimSiam",
    "dino": "trainers.methods.dino:DINO",
    "simclr": "trainers.methods.contrastive:SimCLR",
    "vicreg": "trainers.methods.vicreg:VICReg",
    "moco": "trainers.methods.moco:MoCo",
    "umm": "trainers.methods.umm:UMM",
    "mcinfonce": "trainers.methods.contrastive:MCInfoNCE",
    "infonce": "trainers.methods.contrastive:InfoNCE",
    "hib": "trainers.methods.contrastive:HIB",
    "elk": "trainers.methods.contrastive:ELK",
    "simvae": "trainers.methods.variational:SimVAE",
    "vae": "trainers.methods.variational:VAE",
    "betavae": "trainers.methods.variational:BetaVAE",
    "crvae": "trainers.methods.variational:CRVAE",
    "proxynca": "trainers.methods.proxies:ProxyNCA",
    "proxyanchor": "trainers.methods.proxies:ProxyAnchor",
    "nivmf": "trainers.methods.proxies:NivMF",
    "losspred": "trainers.methods.losspred:LossPred",
    "junk": "trainers.methods.junk:Junk",
    "supervised": "trainers.methods.supervised:Supervised",
    "ensemble": "trainers.methods.classes:Ensemble",
    "mcdropout": "trainers.methods.classes:MCDropout",
    "hetxl": "trainers.methods.classes:HetXL",
    "sngp": "trainers.methods.classes:SNGP",
}
METHODS: "Mapping[str, type[Method[Any]]]" = Lazy(WHERE)
