//! Quality of the mix, and bytes fetched: prints the table in the documentation of the crate with
//! `cargo test -p kiln-shuffle --test it simulation -- --nocapture`.

use kiln_shuffle::report::{self, ClassLabels, Mixing};
use kiln_shuffle::rng::Rng;
use kiln_shuffle::{Order, OrderChoices};

use crate::blocks;

const CLASSES: u32 = 200;
const CLASS_LEN: u32 = 1300;
const COUNT: u32 = CLASSES * CLASS_LEN;
/// Samples in a block: 4 MiB of files of 110 KB.
const BLOCK_LEN: u64 = 38;
const BATCH: u32 = 256;
const EPOCH: u64 = 1;

/// Returns the class of each sample, which follows from its number, as samples are numbered by
/// path.
fn labels() -> Vec<u32> {
    (0..COUNT).map(|sample| sample / CLASS_LEN).collect()
}

/// Returns samples in random order, as `--order shuffle` stores them.
fn shuffled() -> Vec<u32> {
    let mut order: Vec<u32> = (0..COUNT).collect();
    Rng::new(11).permute(&mut order);
    order
}

fn order(stored: &[u32], window_blocks: u32, lanes: u32) -> Order {
    let choices = OrderChoices { seed: 7, batch_global: BATCH, lanes, window_blocks, ..OrderChoices::default() };
    Order::new(blocks(stored.iter().copied(), BLOCK_LEN), choices).unwrap()
}

fn mixing(order: &Order, labels: &[u32]) -> Mixing {
    let labels = ClassLabels::new(labels, order.blocks().samples()).unwrap();
    report::mixing(&order.order(EPOCH), labels, BATCH as usize)
}

#[test]
fn a_uniform_order_has_dispersion_1() {
    let labels = labels();
    let uniform = report::mixing(&shuffled(), ClassLabels::new(&labels, &[]).unwrap(), BATCH as usize);
    println!("uniform                             {:5.2} {:6.1}", uniform.dispersion, uniform.classes);
    assert!((uniform.dispersion - 1.0).abs() < 0.02, "{uniform:?}");
    assert!((uniform.classes - uniform.uniform_classes).abs() < 0.5, "{uniform:?}");
    let by_class: Vec<u32> = (0..COUNT).collect();
    let by_class = report::mixing(&by_class, ClassLabels::new(&labels, &[]).unwrap(), BATCH as usize);
    println!("stored order, by class              {:5.1} {:6.1}", by_class.dispersion, by_class.classes);
    assert!(by_class.dispersion > 200.0, "{by_class:?}");
}

#[test]
fn data_stored_by_class_is_mixed_as_the_law_says() {
    let (labels, stored) = (labels(), (0..COUNT).collect::<Vec<u32>>());
    for (window_blocks, lanes) in [(64, 1), (256, 1), (1024, 1), (64, 4), (256, 8)] {
        let order = order(&stored, window_blocks, lanes);
        let likeness = report::likeness(order.blocks(), ClassLabels::new(&labels, order.blocks().samples()).unwrap());
        let (mixing, law) = (mixing(&order, &labels), report::expected_dispersion(&order, likeness));
        let (pairs, fetched) = (report::pairs(&order, EPOCH), report::fetched(&order, EPOCH, 2.0));
        println!(
            "by class, {window_blocks:4} blocks, {lanes} lanes, h {likeness:4.2}   {:5.2} {law:5.2} {:6.1} {:6.1} {fetched:6.3}",
            mixing.dispersion,
            mixing.classes,
            pairs.share / pairs.uniform
        );
        assert!((mixing.dispersion / law - 1.0).abs() < 0.1, "{mixing:?} {law}");
        // A few blocks have samples of two classes.
        assert!((0.95..=1.0).contains(&likeness), "{likeness}");
        assert!(fetched <= 1.02, "{fetched}");
    }
}

#[test]
fn data_stored_shuffled_is_mixed_as_if_drawn_uniformly() {
    let (labels, stored) = (labels(), shuffled());
    for (window_blocks, lanes) in [(64, 1), (256, 1), (64, 8)] {
        let order = order(&stored, window_blocks, lanes);
        let likeness = report::likeness(order.blocks(), ClassLabels::new(&labels, order.blocks().samples()).unwrap());
        let (mixing, law) = (mixing(&order, &labels), report::expected_dispersion(&order, likeness));
        let (pairs, fetched) = (report::pairs(&order, EPOCH), report::fetched(&order, EPOCH, 2.0));
        println!(
            "shuffled, {window_blocks:4} blocks, {lanes} lanes, h {likeness:4.2}   {:5.2} {law:5.2} {:6.1} {:6.1} {fetched:6.3}",
            mixing.dispersion,
            mixing.classes,
            pairs.share / pairs.uniform
        );
        assert!((0.95..=1.05).contains(&mixing.dispersion), "{mixing:?}");
        assert!(likeness.abs() < 0.01, "{likeness}");
        assert!((mixing.classes - mixing.uniform_classes).abs() < 1.0, "{mixing:?}");
        assert!(fetched <= 1.02, "{fetched}");
    }
}

/// Two samples of a block are in one batch as often as two samples of a window: (G/C − 1) /
/// (samples of the window − 1), if both are in it.
#[test]
fn pairs_of_a_block_are_as_frequent_as_pairs_of_a_window() {
    let stored: Vec<u32> = (0..COUNT).collect();
    for (window_blocks, lanes) in [(64, 1), (256, 1), (64, 4)] {
        let order = order(&stored, window_blocks, lanes);
        let pairs = report::pairs(&order, EPOCH);
        let windows = order.epoch(EPOCH).window_lens().count() as f64;
        let expected = f64::from(BATCH / lanes - 1) / (f64::from(COUNT) / windows - 1.0);
        assert!((pairs.share / expected - 1.0).abs() < 0.05, "{pairs:?} {expected}");
    }
    // One window is the whole dataset: every pair is as frequent as any other.
    let pairs = report::pairs(&order(&stored, 100_000, 1), EPOCH);
    assert!((pairs.share / pairs.uniform - 1.0).abs() < 0.05, "{pairs:?}");
}

/// Without the cache of two windows, blocks are fetched again and again: the figure above is not 1
/// by construction.
#[test]
fn a_cache_below_a_window_fetches_blocks_again() {
    let order = order(&(0..COUNT).collect::<Vec<u32>>(), 256, 1);
    let fetched = report::fetched(&order, EPOCH, 0.5);
    assert!(fetched > 10.0, "{fetched}");
}

#[test]
fn invalid_labels_are_rejected() {
    let error = ClassLabels::new(&[0, 1], &[0, 5]).unwrap_err().to_string();
    assert_eq!(error, "number of labels is 2, but must be above 5, the number of a sample");
    let error = ClassLabels::new(&[0, u32::MAX], &[0, 1]).unwrap_err().to_string();
    assert_eq!(error, "label is 4294967295, but must be below 2, the number of labels");
    let labels = ClassLabels::new(&[], &[]).unwrap();
    assert_eq!(report::dispersion(&[], labels, 0), 0.0);
}
