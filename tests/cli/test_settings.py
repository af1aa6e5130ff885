"""Settings come from four sources, the later stronger, and every wrong one is named."""

from pathlib import Path
from typing import Any

import pytest

from countermark.cli import settings
from countermark.cli.settings import PROJECT_FILE, ROSTER, SettingDefect, Settings, resolve_settings
from countermark.lines.surface import SettingUnknown, SettingUnreadable
from countermark.store.opening import folder_of
from countermark.values import Refused
from tests.faults import planted, proven_by


def resolved(here: Path, environ: dict[str, str] | None = None, **flags: str) -> Settings:
    found = resolve_settings(dict(flags), environ or {}, here)
    assert isinstance(found, Settings)
    return found


def defects(here: Path, environ: dict[str, str] | None = None, **flags: str) -> set[SettingDefect]:
    found = resolve_settings(dict(flags), environ or {}, here)
    assert isinstance(found, Refused)
    return set(found.defects)


def sources(found: Settings) -> dict[str, tuple[str, str]]:
    return {each.setting.name: (each.value, each.source) for each in found.resolved}


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_without_any_source_every_setting_has_its_default(tmp_path: Path) -> None:
    found = resolved(tmp_path)
    assert found.store == tmp_path / ".countermark"
    assert (found.principal, found.launcher) == ("local", "local")
    assert (found.grace_s, found.stop_grace_s, found.watch_interval_s) == (30.0, 10.0, 0.5)
    assert found.requester != ""
    assert {source for _, source in sources(found).values()} == {"default"}
    assert list(sources(found)) == [setting.name for setting in ROSTER]


def test_each_source_is_stronger_than_the_one_before(tmp_path: Path) -> None:
    project = write(tmp_path / PROJECT_FILE, 'principal = "a"\nlauncher = "local"\ngrace_s = 1\nwatch_interval_s = 1\n')
    user = write(tmp_path / "config/countermark/config.toml", 'principal = "b"\ngrace_s = 2\nwatch_interval_s = 2\n')
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "COUNTERMARK_PRINCIPAL": "c", "COUNTERMARK_GRACE_S": "3"}
    found = resolved(tmp_path, environ, principal="d")
    assert sources(found) == {
        "store.url": (f"sqlite:///{tmp_path}/.countermark", "default"),
        "principal": ("d", "flag"),
        "requester": (found.requester, "default"),
        "launcher": ("local", project),
        "grace_s": ("3", "COUNTERMARK_GRACE_S"),
        "stop_grace_s": ("10", "default"),
        "watch_interval_s": ("2", user),
        "session.idle_s": ("300", "default"),
        "session.keep_days": ("", "default"),
        "serve.forward.endpoint": ("", "default"),
        "serve.forward.mode": ("metadata", "default"),
        "serve.forward.headers": ("", "default"),
    }


def test_the_project_file_and_the_store_are_found_upwards(tmp_path: Path) -> None:
    write(tmp_path / PROJECT_FILE, 'principal = "team"\n')
    (tmp_path / ".countermark").mkdir()
    below = tmp_path / "a/b"
    below.mkdir(parents=True)
    found = resolved(below)
    assert (found.principal, found.store) == ("team", tmp_path / ".countermark")


@pytest.mark.parametrize(
    ("url", "folder"),
    [("sqlite:////data/x", "/data/x"), ("sqlite:////data/x/ledger.sqlite", "/data/x"), ("sqlite:///shelf", "{here}/shelf")],
)
def test_a_store_is_named_by_its_folder_or_its_ledger(tmp_path: Path, url: str, folder: str) -> None:
    write(tmp_path / PROJECT_FILE, f'[store]\nurl = "{url}"\n')
    assert resolved(tmp_path).store == Path(folder.format(here=tmp_path))


def test_every_wrong_setting_of_every_source_is_named(tmp_path: Path) -> None:
    project = write(tmp_path / PROJECT_FILE, "principle = 'a'\ngrace_s = 'soon'\n[store]\nurl = 7\n")
    environ = {"COUNTERMARK_LAUNCHER": "slurm"}
    assert defects(tmp_path, environ, requester="two words") == {
        SettingUnknown("principle", project, ("principal",)),
        SettingUnreadable("grace_s", project, "soon", "it is no number of seconds from 0 to 999999 with at most three decimals"),
        SettingUnreadable("store.url", project, "7", "it is no text"),
        SettingUnreadable("launcher", "COUNTERMARK_LAUNCHER", "slurm", "this version starts local processes only; write local"),
        SettingUnreadable(
            "requester", "flag", "two words", "a name is 1 to 200 letters, digits and ._@:/+- and begins with a letter or digit"
        ),
    }


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"principal = \n", "it is no TOML"),
        (b"a = 1\na = 2\n", "it is no TOML"),
        (b"\xff", "it is no TOML"),
        (b"a = " + b"[" * 20_000, "it is no TOML"),
        (b"#" * (1024 * 1024 + 1), "larger than 1 MiB"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / PROJECT_FILE).write_bytes(content)
    (found,) = defects(tmp_path)
    assert isinstance(found, SettingUnreadable)
    assert (found.setting, found.source) == ("the file", str(tmp_path / PROJECT_FILE))
    assert why in found.why


@proven_by(planted(settings, "VARIABLES_OF_OURS", frozenset()))
def test_a_misspelled_variable_is_warned_of_and_a_trainer_s_is_not(tmp_path: Path) -> None:
    environ = {"COUNTERMARK_PRINCIPLE": "team", "COUNTERMARK_MANIFEST": "/m.json", "COUNTERMARK_RESUME": "", "PATH": "/bin"}
    warnings = [(each.setting, each.source, each.nearest[:1]) for each in resolved(tmp_path, environ).warnings]
    assert warnings == [("COUNTERMARK_PRINCIPLE", "the environment", ("COUNTERMARK_PRINCIPAL",))]


@pytest.mark.parametrize(
    "url", ["postgresql://host", "postgresql://u@h/a b", "mysql://host/db", "sqlite:///", "sqlite:///a\0b", "/just/a/path", ""]
)
def test_an_address_that_is_no_store_is_refused(tmp_path: Path, url: str) -> None:
    found = resolve_settings({"store.url": url}, {}, tmp_path)
    assert isinstance(found, Refused)
    assert [type(defect) for defect in found.defects] == [SettingUnreadable]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:secret@host:5433/runs", "postgresql://ada:…@host:5433/runs"),
        ("postgres://ada:se@cret:x@host/runs?sslmode=require&PASSWORD=secret", "postgres://ada:…@host/runs?sslmode=require&PASSWORD=…"),
        ("postgresql:///runs?host=/tmp/socket&sslpassword=secret", "postgresql:///runs?host=/tmp/socket&sslpassword=…"),
        ("postgresql://ada@host/runs", "postgresql://ada@host/runs"),
    ],
)
def test_a_database_is_named_and_its_password_never_shown(tmp_path: Path, url: str, shown: str) -> None:
    (tmp_path / ".countermark").mkdir()
    found = resolved(tmp_path, {"COUNTERMARK_STORE_URL": url})
    assert (found.database, found.store) == (url, tmp_path / ".countermark"), "the attempts of this host lie where the store would be"
    assert (found.store_shown, sources(found)["store.url"]) == (shown, (shown, "COUNTERMARK_STORE_URL"))
    assert resolved(tmp_path).database is None and resolved(tmp_path).store_shown == str(tmp_path / ".countermark")


@pytest.mark.parametrize(
    "url", ["postgresql://ada:secret@host", "mysql://ada:secret@host/runs", "ada:secret@host", "postgresql:ada:secret@h/d"]
)
@proven_by(planted(settings, "without_password", str))
def test_an_address_that_is_refused_shows_no_password_either(tmp_path: Path, url: str) -> None:
    (defect,) = defects(tmp_path, **{"store.url": url})
    assert "secret" not in repr(defect)


def test_a_user_whose_name_is_no_requester_gets_one_that_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def user() -> Any:
        return "_søren w@host"

    monkeypatch.setattr(settings.getpass, "getuser", user)
    assert resolved(tmp_path).requester == "s-ren-w@host"


def test_the_folder_of_a_ledger_file_is_its_store() -> None:
    assert folder_of("sqlite:////a/b.sqlite") == Path("/a")


def test_where_edits_are_sent_on_to_is_set_in_its_table(tmp_path: Path) -> None:
    nothing = resolved(tmp_path)
    assert (nothing.forward_endpoint, nothing.forward_mode, nothing.forward_headers) == ("", "metadata", ())
    said = 'endpoint = "https://collect.example:4318/otlp"\nmode = "full"\nheaders = "authorization=Bearer%20s3cret,x-team=a"\n'
    project = write(tmp_path / PROJECT_FILE, f"[serve.forward]\n{said}")
    found = resolved(tmp_path)
    assert (found.forward_endpoint, found.forward_mode) == ("https://collect.example:4318/otlp", "full")
    assert found.forward_headers == (("authorization", "Bearer s3cret"), ("x-team", "a"))
    assert sources(found)["serve.forward.headers"] == ("authorization=…,x-team=…", project)


@pytest.mark.parametrize(
    ("name", "said", "shown"),
    [
        ("endpoint", "collect.example:4318", "collect.example:4318"),
        ("endpoint", "ada:s3cret@collect.example", "…"),
        ("endpoint", "ftp://collect.example", "ftp://collect.example"),
        ("endpoint", "https://ada:s3cret@collect.example", "https://ada:…@collect.example"),
        ("endpoint", "https://collect.example/?key=s3cret", "https://collect.example/"),
        ("endpoint", "https://collect.example:99999", "https://collect.example:99999"),
        ("mode", "all", "all"),
        ("headers", "authorization s3cret", "…"),
        ("headers", "a=b,x y=s3cret", "…"),
        ("headers", "a=s3cret%0d%0ab: c", "…"),
    ],
)
@proven_by(planted(settings, "_shown", lambda setting, raw: raw + " s3cret"))
def test_what_nobody_can_send_by_is_refused_and_shows_no_secret(tmp_path: Path, name: str, said: str, shown: str) -> None:
    (defect,) = defects(tmp_path, **{f"serve.forward.{name}": said})
    assert isinstance(defect, SettingUnreadable)
    assert (defect.setting, defect.found) == (f"serve.forward.{name}", shown)


@pytest.mark.parametrize(
    ("said", "days"), [("keep_days = 90", 90), ('keep_days = "7"', 7), ("keep_days = 36500", 36_500), ('keep_days = ""', None), ("", None)]
)
def test_for_how_many_days_sessions_are_kept(tmp_path: Path, said: str, days: int | None) -> None:
    write(tmp_path / PROJECT_FILE, f"[session]\n{said}\n")
    assert resolved(tmp_path).session_keep_days == days


@proven_by(planted(settings, "KEEP_DAYS_MAX", 99_999))
def test_a_number_of_days_that_is_none_is_refused(tmp_path: Path) -> None:
    for said in ("0", "-1", "1.5", "true", "36501", '"off"', '"٣"'):
        path = write(tmp_path / PROJECT_FILE, f"[session]\nkeep_days = {said}\n")
        (found,) = defects(tmp_path)
        assert isinstance(found, SettingUnreadable)
        assert (found.setting, found.source, found.why) == ("session.keep_days", path, "it is no whole number of days from 1 to 36500")
