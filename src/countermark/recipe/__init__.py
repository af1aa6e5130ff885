"""Recipes: what a training recipe says, what it leaves open, and the one computation that it names.

Recipe text becomes observations (``formats``), observations resolve to a manifest or are refused with every reason, and a resolution's
contract derives the Work key.
"""

from countermark.recipe.manifest import (
    ENTRIES,
    ROSTER,
    CoordinateMissing,
    CoordinateUnknown,
    CoordinateUnreadable,
    Difference,
    Manifest,
    ManifestDefect,
    coordinates,
    differing,
    manifest_from_spellings,
    read_coordinate,
    spellings,
)
from countermark.recipe.resolve import (
    AxisUnresolved,
    CoordinateRefused,
    Layer,
    Observation,
    Observations,
    ObservationsContradict,
    Receipt,
    Resolution,
    ResolveDefect,
    SettingRefused,
    UnknownField,
    UnsupportedSemanticField,
    observed,
    resolve,
)
from countermark.recipe.sums import Coordinate
from countermark.recipe.work import Contract, Requirements, WorkKey, contract_of, derive_work_key, key_material

__all__ = [
    "ENTRIES",
    "ROSTER",
    "AxisUnresolved",
    "Contract",
    "Coordinate",
    "CoordinateMissing",
    "CoordinateRefused",
    "CoordinateUnknown",
    "CoordinateUnreadable",
    "Difference",
    "Layer",
    "Manifest",
    "ManifestDefect",
    "Observation",
    "Observations",
    "ObservationsContradict",
    "Receipt",
    "Requirements",
    "Resolution",
    "ResolveDefect",
    "SettingRefused",
    "UnknownField",
    "UnsupportedSemanticField",
    "WorkKey",
    "contract_of",
    "coordinates",
    "derive_work_key",
    "differing",
    "key_material",
    "manifest_from_spellings",
    "observed",
    "read_coordinate",
    "resolve",
    "spellings",
]
