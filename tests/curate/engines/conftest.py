"""A real Ray cluster of two nodes, for all tests that need one."""

import os

import pytest

NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}


@pytest.fixture(scope="session")
def cluster():
    """A head and a node, with a core each."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'kappa-curate[ray]'")
    from ray.cluster_utils import Cluster as TwoNodes

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    nodes = TwoNodes(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    nodes.add_node(**NODE)
    yield nodes
    nodes.shutdown()
