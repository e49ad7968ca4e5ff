"""What a training run is told: the settings as typed models, and TOML files with dotted overrides.

Defaults are the paper's. Not here: what the settings do, and what a run needs of a machine (`trainer.run`).
"""

from trainer.config.schema import TrainConfig
from trainer.config.sections import (
    BranchingConfig,
    ClusterConfig,
    DataConfig,
    EngineConfig,
    PolicyConfig,
    RewardConfig,
    Roles,
    RolloutConfig,
    UpdateConfig,
    is_address,
)
from trainer.config.toml_file import ConfigError, read_config, to_toml

__all__ = [
    "BranchingConfig",
    "ClusterConfig",
    "ConfigError",
    "DataConfig",
    "EngineConfig",
    "PolicyConfig",
    "RewardConfig",
    "Roles",
    "RolloutConfig",
    "TrainConfig",
    "UpdateConfig",
    "is_address",
    "read_config",
    "to_toml",
]
