//! `kiln pack --estimate`.

use crate::common::{Scratch, fails, stdout, text};
use serde_json::Value;
use std::fs;

fn tree(scratch: &Scratch) -> String {
    let root = scratch.path("src");
    fs::create_dir(&root).unwrap();
    for n in 0..60 {
        fs::write(format!("{root}/{n}"), text(n, 500 << (n % 7))).unwrap();
    }
    root
}

fn estimates(args: &[&str]) -> Vec<Value> {
    let document: Value = serde_json::from_slice(&stdout(args)).unwrap();
    document["estimates"].as_array().unwrap().clone()
}

#[test]
fn every_preset_is_estimated_as_it_is_built() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    for options in [&[][..], &["--kernel", "6.15"]] {
        let found = estimates(&[&["pack", "--estimate", "--json", &root], options].concat());
        assert_eq!(found.len(), 5);
        for estimate in found {
            let preset = estimate["preset"].as_str().unwrap();
            let image = scratch.path(preset);
            let args = [&["pack", "--json", "--force", "--preset", preset, &root, &image], options].concat();
            let built: Value = serde_json::from_slice(&stdout(&args)).unwrap();
            let number = |value: &Value| value.as_f64().unwrap();
            // A tree of this size is packed as a whole.
            let off_by = number(&estimate["image_bytes"]) - number(&built["image_bytes"]);
            assert!(off_by.abs() <= 8192.0, "{preset} {options:?}: {estimate} for {}", built["image_bytes"]);
            assert_eq!(estimate["image_bytes_error"], 0, "{preset}");
            assert_eq!(estimate["oldest_kernel"], built["oldest_kernel"], "{preset} {options:?}");
            assert_eq!(estimate["bytes_in"], built["bytes_in"]);
            assert!(number(&estimate["cpu_secs"]) > 0.0 && number(&estimate["wall_secs"]) > 0.0);
        }
    }
}

#[test]
fn presets_that_an_option_contradicts_say_so() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let found = estimates(&["pack", "--estimate", "--json", "--fragments", "64k", &root]);
    let refused: Vec<_> = found.iter().filter(|one| one.get("refused").is_some()).collect();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0]["preset"], "plain");
    assert!(refused[0]["refused"].as_str().unwrap().contains("nothing is compressed"));
    fails(&["pack", "--estimate", "-C", "5", &root], 2, "--cluster-size 5");
    fails(&["pack", "--estimate", &scratch.path("nowhere")], 1, "nowhere");
    // An estimate makes no image: all operands are sources.
    fails(&["pack", "--estimate", &root, &scratch.path("image")], 1, "No such file");
    fails(&["pack", "--estimate", &root, "-o", &scratch.path("image")], 2, "cannot be used with");
    fails(&["pack", &root], 2, "name the image to make");
}

#[test]
fn people_get_a_table() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let table = String::from_utf8(stdout(&["pack", "--estimate", &root])).unwrap();
    let presets: Vec<_> = table.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(presets, ["preset", "plain", "fast", "balanced", "archive", "dataset"]);
    assert!(table.lines().all(|line| line.split(' ').count() > 5), "{table}");
    assert_eq!(scratch.names(), ["src"], "nothing is built");
}
