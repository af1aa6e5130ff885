"""What the suite takes out of the environment that it was started in, listed in one place.

Build services, editors and automation around a shell announce themselves in variables, and libraries change what they print or do
because of them: colours, widths, offline modes, ranks of a distributed run. A test must not see any of it.
"""

from collections.abc import Iterable, Mapping

#: Switches of this suite itself (which server to test against): they stay.
OWN_SWITCHES = "COUNTERMARK_TEST_"

#: A variable goes if its name begins with one of these.
PREFIXES = (
    "COUNTERMARK_",
    # build services
    "APPVEYOR", "AZURE_", "BITBUCKET_", "BUILDKITE", "BUILD_", "CIRCLE", "CI_", "CODEBUILD_", "DRONE", "GITHUB_", "GITLAB_", "JENKINS_",
    "RUNNER_", "TEAMCITY_", "TRAVIS",
    # editors and automation that drive a shell
    "AGENT_", "AIDER_", "AI_AGENT", "AMP_", "ANTHROPIC_", "AUGMENT_", "CLAUDE", "CLINE_", "CODEX_", "COPILOT_", "CURSOR_", "DEVIN_",
    "GEMINI_", "GOOSE_", "OPENAI_", "OPENCODE", "REPLIT_", "ROO_", "VSCODE_", "WINDSURF_",
    # trainers, trackers and batch systems
    "ACCELERATE_", "COMET_", "DATASETS_", "HF_", "HUGGINGFACE_", "MLFLOW_", "PYTORCH_", "RAY_", "SLURM_", "TORCH_", "TORCHELASTIC_",
    "TRANSFORMERS_", "TRL_", "WANDB_",
    # version control running us from a hook, folders of the user, terminals
    "GIT_", "XDG_", "CLICOLOR", "TTY_",
)  # fmt: skip

#: A variable goes if it has one of these names.
NAMES = frozenset(
    {
        "CI", "IS_SANDBOX", "TF_BUILD",
        "COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR", "PY_COLORS", "_TYPER_FORCE_DISABLE_TERMINAL", "_TYPER_STANDARD_TRACEBACK",
        "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE",
    }
)  # fmt: skip


def foreign(names: Iterable[str]) -> tuple[str, ...]:
    """Those of the variable names that a test must not see, in the given order."""
    return tuple(name for name in names if not name.startswith(OWN_SWITCHES) and (name in NAMES or name.startswith(PREFIXES)))


def every_foreign_variable() -> Mapping[str, str]:
    """One variable for every entry above, each with a value that would be noticed: for the test that sets all of them."""
    return dict.fromkeys(sorted(NAMES), "1") | {prefix + ("X" if prefix.endswith("_") else ""): "planted" for prefix in PREFIXES}
