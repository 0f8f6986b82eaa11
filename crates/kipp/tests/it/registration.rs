//! Registered means proved.

use kipp::artifact::{Artifact, Registration};

use crate::paths::repository;

/// The registered weights under another config are another model.
#[test]
fn a_changed_config_is_no_longer_registered() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(repository("models/kipp-tiny").join(name), folder.path().join(name)).unwrap();
    }
    let registered = |folder: &std::path::Path| Artifact::open(folder).unwrap().registration();
    assert!(matches!(registered(folder.path()), Registration::Registered(_)));
    let path = folder.path().join("config.json");
    let config = std::fs::read_to_string(&path).unwrap();
    for (from, to) in [("\"rope_theta\": 1000000", "\"rope_theta\": 10000"), ("1e-06", "1e-03")] {
        assert!(config.contains(from));
        std::fs::write(&path, config.replace(from, to)).unwrap();
        assert_eq!(registered(folder.path()), Registration::Unregistered);
    }
}
