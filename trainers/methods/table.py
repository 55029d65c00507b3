"""The registry of methods by name; a method is imported when it is used, so that help is fast."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from scoring import plugins
from scoring.errors import InputError
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
    "supervised": "trainers.methods.classes:Supervised",
    "ensemble": "trainers.methods.classes:Ensemble",
    "mcdropout": "trainers.methods.classes:MCDropout",
    "hetxl": "trainers.methods.classes:HetXL",
    "sngp": "trainers.methods.classes:SNGP",
}


class MethodTable(Lazy[Any]):
    """The built-in methods, then methods of other packages from the entry point group ``curate.methods``."""

    def __getitem__(self, name: str) -> Any:
        if name in self.where:
            return super().__getitem__(name)
        method = plugins.load_plugin(plugins.plugins(plugins.METHODS)[name])
        from trainers.methods.method import Method

        if not (isinstance(method, type) and issubclass(method, Method)):
            raise InputError(f"the plug-in {name!r} is not a method: expected a subclass of Method, got {method!r}")
        return method

    def __contains__(self, name: object) -> bool:
        return name in self.where or name in plugins.plugins(plugins.METHODS)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self.where, *plugins.plugins(plugins.METHODS)]))

    def __len__(self) -> int:
        return len(list(iter(self)))


METHODS: "Mapping[str, type[Method[Any]]]" = MethodTable(WHERE)
