//! The commands that show the contents of an image and the cost of a read.

use crate::common::{Scratch, fails, golden, run, stdout};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;

fn lines(args: &[&str]) -> Vec<String> {
    String::from_utf8_lossy(&stdout(args)).lines().map(String::from).collect()
}

fn json(args: &[&str]) -> Value {
    let value: Value = serde_json::from_slice(&stdout(args)).unwrap();
    assert_eq!(value["schema"], 2);
    value
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

fn sum(list: &Value, field: &str) -> u64 {
    list.as_array().unwrap().iter().map(|element| number(&element[field])).sum()
}

#[test]
fn info_counts_only_when_asked() {
    let image = golden("zstd-1m-frag.erofs");
    assert!(json(&["info", "--json", &image]).get("stats").is_none());
    let stats = &json(&["info", "--stats", "--json", &image])["stats"];
    assert_eq!(stats, &json(&["info", "--stats", "--threads", "3", "--json", &image])["stats"]);
    let listed = json(&["ls", "-R", "--json", &image]);
    let mut types = BTreeMap::<String, BTreeMap<u64, u64>>::new();
    for entry in listed["entries"].as_array().unwrap() {
        let inodes = types.entry(entry["type"].as_str().unwrap().into()).or_default();
        inodes.insert(number(&entry["nid"]), number(&entry["size"]));
    }
    for found in stats["types"].as_array().unwrap() {
        let name = found["type"].as_str().unwrap();
        let root = u64::from(name == "directory");
        let inodes = &types[name];
        assert_eq!(number(&found["count"]), inodes.len() as u64 + root, "{name}");
        if root == 0 {
            assert_eq!(number(&found["bytes"]), inodes.values().sum::<u64>(), "{name}");
        }
    }
    assert_eq!(sum(&stats["sizes"], "count"), types["file"].len() as u64);
    assert!(number(&stats["fragments"]["saved"]) > 0 && number(&stats["data"]["stored"]) > 0);
    let reads = &stats["block_reads"];
    let blocks: u64 = types["file"].values().map(|size| size.div_ceil(4096)).sum();
    assert!(sum(reads, "blocks") > 0 && sum(reads, "blocks") <= blocks, "{reads} of {blocks}");
    assert_eq!(number(&stats["in_place"]["extents"]), 0);
    let text = lines(&["info", "--stats", &image]).join("\n");
    for word in [
        "Reads of one block",
        "from 1 pcluster ",
        "Oldest kernel",
        "hard link",
        "from 16 B",
        "fragment",
        "zstd",
        "saved by sharing",
        "Padding",
    ] {
        assert!(text.contains(word), "{word} is not in\n{text}");
    }
}

#[test]
fn info_shows_which_extents_decode_in_place() {
    let image = golden("lz4.erofs");
    let in_place = &json(&["info", "--stats", "--json", &image])["stats"]["in_place"];
    let (extents, fit) = (number(&in_place["extents"]), number(&in_place["fit"]));
    assert!(fit > 0 && fit <= extents, "{in_place}");
    let text = lines(&["info", "--stats", &image]);
    let row = text.iter().find(|line| line.contains("decoded in place")).unwrap();
    let share = format!("{:.2}", 100.0 * fit as f64 / extents as f64);
    assert_eq!(row.split_whitespace().skip(3).collect::<Vec<_>>(), [&fit.to_string(), &share, "%"]);
}

#[test]
fn stat_shows_extents() {
    for (image, path) in [
        ("lz4-dedupe.erofs", "big/mixed"),
        ("zstd-1m-frag.erofs", "big/text"),
        ("metabox-zstd.erofs", "big/text"),
        ("blobdev.erofs", "big/mixed"),
        ("inline.erofs", "big"),
    ] {
        let stat = json(&["stat", "-e", "--json", &golden(image), path]);
        let extents = stat["extents"].as_array().unwrap();
        assert_eq!(sum(&stat["extents"], "bytes"), number(&stat["size"]), "{image}");
        let text = lines(&["stat", "--extents", &golden(image), path]);
        let head = text.iter().position(|line| line == "Extents:").unwrap();
        let rows: Vec<Vec<&str>> = text[head + 2..].iter().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows.len(), extents.len());
        for (row, extent) in rows.iter().zip(extents) {
            assert_eq!(row[0], extent["offset"].to_string());
            assert_eq!(row[1], extent["bytes"].to_string());
            assert_eq!(row[2], extent["stored_as"]);
        }
    }
    assert!(json(&["stat", "--json", &golden("inline.erofs"), "big"]).get("extents").is_none());
    let text = lines(&["stat", "--extents", &golden("blobdev.erofs"), "big/mixed"]).join("\n");
    assert!(text.contains("raw") && text.contains("device"), "{text}");
}

#[test]
fn devices_and_nodes_have_no_extents() {
    let image = golden("inline.erofs");
    let listed = json(&["ls", "-R", "--json", &image]);
    let entries = listed["entries"].as_array().unwrap();
    let fifo = entries.iter().find(|entry| entry["type"] == "fifo").unwrap()["path"].as_str().unwrap();
    assert!(json(&["stat", "--extents", "--json", &image, fifo]).get("extents").is_none());
    assert!(!lines(&["stat", "--extents", &image, fifo]).join("\n").contains("Extents"));
    fails(&["explain", &image, fifo], 1, "no contents");
}

#[test]
fn explain_adds_up() {
    let image = golden("lz4-dedupe.erofs");
    for (range, wanted) in
        [(None, 120_841), (Some("0-4096"), 4096), (Some("10k+50k"), 50 << 10), (Some("120000-"), 841)]
    {
        let args = [&["explain", "--json", &image, "big/mixed"][..], &Vec::from_iter(range)].concat();
        let cost = json(&args);
        assert_eq!((number(&cost["wanted"]), sum(&cost["pieces"], "bytes")), (wanted, wanted), "{range:?}");
        assert_eq!(number(&cost["fetched"]), sum(&cost["pieces"], "fetched"));
        assert_eq!(number(&cost["decoded"]), sum(&cost["pieces"], "decoded"));
        let expected = number(&cost["fetched"]) as f64 / wanted as f64;
        assert!((cost["fetch_amplification"].as_f64().unwrap() - expected).abs() < 1e-9);
    }
    let whole = json(&["explain", "--json", &image, "big/mixed"]);
    assert_eq!((&whole["wasted"], &whole["decoded"]), (&0.into(), &120_841.into()));
    let text = lines(&["explain", &image, "big/mixed", "10k+50k"]).join("\n");
    assert!(text.contains("Wanted:   51200 bytes (50.0 KiB)") && text.contains("12 blocks, 0.96 times"), "{text}");
}

#[test]
fn explain_looks_through_fragments() {
    let image = golden("zstd-1m-frag.erofs");
    let cost = json(&["explain", "--json", &image, "big/mixed", "50k+1"]);
    let piece = &cost["pieces"][0];
    assert_eq!((&piece["stored_as"], &piece["decoding"]), (&"zstd".into(), &"prefix".into()));
    let (decoded, extent) = (number(&piece["decoded"]), number(&piece["extent_bytes"]));
    assert!(decoded < extent, "{decoded} of {extent}");
    assert!(number(&piece["fragment_offset"]) > 0 && number(&cost["wasted"]) + 1 == number(&cost["decoded"]));
    let text = lines(&["explain", &image, "big/mixed", "50k+1"]).join("\n");
    assert!(text.contains("fragment: byte"), "{text}");
}

#[test]
fn du_measures_trees() {
    let image = golden("lz4.erofs");
    let all = json(&["du", "--json", &image]);
    let dirs = all["directories"].as_array().unwrap();
    let listed = json(&["ls", "-R", "--json", &image]);
    let entries = listed["entries"].as_array().unwrap();
    assert_eq!(dirs.len(), 1 + entries.iter().filter(|entry| entry["type"] == "directory").count());
    let root = dirs.last().unwrap();
    assert_eq!((&root["path"], &root["depth"]), (&"".into(), &0.into()));
    let len = fs::metadata(&image).unwrap().len();
    assert!(number(&root["on_disk"]) <= len && number(&root["on_disk"]) > len / 2);
    // One level, and only the sums.
    let one = json(&["du", "--json", "--depth", "1", &image]);
    assert!(one["directories"].as_array().unwrap().iter().all(|dir| dirs.contains(dir) && number(&dir["depth"]) <= 1));
    let sums = lines(&["du", "-sb", &image, "big", "/deep", "big/text"]);
    let rows: Vec<Vec<&str>> = sums.iter().map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.iter().map(|row| row[1]).collect::<Vec<_>>(), ["big", "deep", "big/text"]);
    assert_eq!(rows[2][0], "0", "what was measured before is not measured again");
    assert_eq!(lines(&["du", "-sb", "--apparent", &image, "big/text"]), ["151914\tbig/text"]);
    assert_eq!(lines(&["du", "-s", "--apparent", &image, "big/text"]), [" 148.4 KiB  big/text"]);
    assert!(lines(&["du", "-s", &image])[0].ends_with("  /"));
}

#[test]
fn hard_links_are_measured_once() {
    let image = golden("inline.erofs");
    let listed = json(&["ls", "-R", "--json", &image]);
    let entries = listed["entries"].as_array().unwrap();
    let linked = entries.iter().filter(|e| e["type"] == "file" && number(&e["nlink"]) > 1);
    let mut paths = BTreeMap::<u64, Vec<&str>>::new();
    for entry in linked {
        paths.entry(number(&entry["nid"])).or_default().push(entry["path"].as_str().unwrap());
    }
    let names = paths.values().next().unwrap();
    assert!(names.len() > 1);
    let found = json(&["du", "--json", &image, names[0], names[1]]);
    assert_eq!((&found["directories"][0]["files"], &found["directories"][1]["files"]), (&1.into(), &0.into()));
}

#[test]
fn mistakes_are_told() {
    let image = golden("lz4.erofs");
    fails(&["explain", &image, "big/nothing"], 1, "big/nothing: no such file");
    fails(&["stat", "--extents", &image, "big/nothing"], 1, "big/nothing");
    fails(&["du", &image, "/", "nothing"], 1, "nothing: no such file");
    fails(&["explain", &image, "big/text", "100M-101M"], 2, "and no byte 104857600");
    fails(&["explain", &image, "big/text", "8-7"], 2, "ends before it starts");
    fails(&["explain", &image, "big/text", "x"], 2, "write a range as");
    fails(&["du", "-s", "--depth", "1", &image], 2, "cannot be used with");
}

#[test]
fn damage_is_an_error_with_a_path() {
    let scratch = Scratch::new();
    let bytes = fs::read(golden("flat.erofs")).unwrap();
    let cut = scratch.path("cut");
    fs::write(&cut, &bytes[..bytes.len() - 4096]).unwrap();
    let listed = json(&["ls", "-R", "--json", &golden("flat.erofs")]);
    let is_cut = |path: &str| run(&["cat", &cut, path]).status.code() == Some(1);
    let files =
        listed["entries"].as_array().unwrap().iter().filter(|e| e["type"] == "file" && e.get("path_b64").is_none());
    let path = files.map(|e| e["path"].as_str().unwrap()).find(|path| is_cut(path)).unwrap();
    fails(&["explain", &cut, path], 1, path);
    fails(&["explain", "--json", &cut, path], 1, path);
    fails(&["info", "--stats", &cut], 1, "corrupt image: /");
    fails(&["du", &cut], 1, path);
}
