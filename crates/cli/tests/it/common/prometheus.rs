//! The text format of Prometheus, read as strictly as promtool does.

use std::collections::{BTreeMap, BTreeSet};

/// Name and labels of a sample, the labels sorted.
pub type Series = (String, BTreeMap<String, String>);

/// Returns all samples of `text`, which must follow the rules: a family is one run of lines, with its help and type
/// before its samples; no series occurs twice; buckets of histograms grow, and the last one counts all.
pub fn parse(text: &str) -> BTreeMap<Series, f64> {
    assert!(text.ends_with('\n'), "the last line must end");
    let (mut types, mut helped, mut samples) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
    let mut family = String::new();
    let mut with_samples = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert!(is_name(name) && !help.is_empty() && helped.insert(name.to_owned()), "{line}");
            name.clone_into(&mut family);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert!(name == family && ["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
        } else {
            let (series, value) = sample(line);
            let kind = types.get(&family).unwrap_or_else(|| panic!("{line}: no type before"));
            let suffix = series.0.strip_prefix(&family).unwrap_or_else(|| panic!("{line}: not in {family}"));
            let is_fit = match &**kind {
                "histogram" => ["_bucket", "_sum", "_count"].contains(&suffix),
                "counter" => suffix.is_empty() && (family.ends_with("_total")),
                _ => suffix.is_empty(),
            };
            assert!(is_fit, "{line}: no sample of a {kind}");
            assert_eq!(suffix == "_bucket", series.1.contains_key("le"), "{line}");
            with_samples.insert(family.clone());
            assert!(samples.insert(series, value).is_none(), "{line}: twice");
        }
    }
    assert_eq!(types.keys().collect::<Vec<_>>(), with_samples.iter().collect::<Vec<_>>(), "families without samples");
    for name in types.iter().filter(|(_, kind)| *kind == "histogram").map(|(name, _)| name) {
        histogram(name, &samples);
    }
    samples
}

/// Checks that buckets grow with their bounds, up to that of all, which is the count.
fn histogram(name: &str, samples: &BTreeMap<Series, f64>) {
    let mut buckets: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
    for ((_, labels), value) in samples.iter().filter(|((found, _), _)| *found == format!("{name}_bucket")) {
        let mut labels = labels.clone();
        let bound = labels.remove("le").unwrap();
        let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
        buckets.entry(labels).or_default().push((bound, *value));
    }
    assert!(!buckets.is_empty(), "{name}");
    for (labels, mut buckets) in buckets {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{name} {labels:?}: {buckets:?}");
        let (bound, all) = *buckets.last().unwrap();
        assert_eq!(bound, f64::INFINITY, "{name} {labels:?}");
        assert_eq!(samples.get(&(format!("{name}_count"), labels.clone())), Some(&all), "{name} {labels:?}");
        assert!(samples.contains_key(&(format!("{name}_sum"), labels.clone())), "{name} {labels:?}");
    }
}

/// Parses `name value` or `name{label="value",...} value`.
fn sample(line: &str) -> (Series, f64) {
    let bad = |what: &str| -> ! { panic!("{what}: {line}") };
    let end = line.find(['{', ' ']).unwrap_or_else(|| bad("no value"));
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, behind) = rest.split_once("=\"").unwrap_or_else(|| bad("no label"));
            let (value, behind) = quoted(behind).unwrap_or_else(|| bad("no end of a value"));
            assert!(
                is_name(label) && !label.contains(':') && labels.insert(label.to_owned(), value).is_none(),
                "{line}"
            );
            match behind.split_at_checked(1) {
                Some((",", behind)) => rest = behind,
                Some(("}", behind)) => break rest = behind,
                _ => bad("no end of the labels"),
            }
        }
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| bad("no space"));
    assert!(is_name(name), "{line}");
    ((name.to_owned(), labels), value.parse().unwrap_or_else(|_| bad("no number")))
}

/// Returns the value up to the quote that ends it, and the rest.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                _ => return None,
            }),
            c => value.push(c),
        }
    }
    None
}

fn is_name(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}
