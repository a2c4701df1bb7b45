//! Laws that hold for every order.

use kiln_shuffle::{Epoch, LastBatch, Order, OrderChoices, Share};
use std::collections::HashSet;

use crate::blocks;

/// Returns choices of every kind, with numbers of samples and lengths of blocks.
fn cases() -> impl Iterator<Item = (u32, u64, OrderChoices)> {
    let counts = [0, 1, 2, 7, 64, 100, 333, 1000];
    let shapes = [(1, 1), (6, 2), (8, 8), (30, 3), (64, 4)];
    let block_lens = [1, 5, 38, 5000];
    let lasts = [LastBatch::Drop, LastBatch::Short, LastBatch::Fill];
    let switches = lasts.map(|last| [(true, last), (false, last)]).concat();
    counts.into_iter().enumerate().flat_map(move |(idx, count)| {
        let switches = switches.clone();
        shapes.into_iter().flat_map(move |(batch_global, lanes)| {
            let switches = switches.clone();
            block_lens.into_iter().flat_map(move |block_len| {
                switches.clone().into_iter().map(move |(shuffle, last)| {
                    let (seed, window_blocks) = (idx as u64 * 31 + u64::from(lanes), [1, 3, 64][idx % 3]);
                    (count, block_len, OrderChoices { seed, batch_global, lanes, window_blocks, shuffle, last })
                })
            })
        })
    })
}

fn order(count: u32, block_len: u64, choices: OrderChoices) -> Option<Order> {
    Order::new(blocks((0..count).rev(), block_len), choices).ok()
}

/// Returns how often each sample is visited.
fn visits(count: u32, order: &[u32]) -> Vec<u32> {
    let mut visits = vec![0; count as usize];
    order.iter().for_each(|&sample| visits[sample as usize] += 1);
    visits
}

fn rest(epoch: &mut Epoch, share: &Share) -> Vec<u32> {
    std::iter::from_fn(|| epoch.next_batch(share)).flatten().collect()
}

#[test]
fn each_sample_is_visited_once() {
    let mut refused = 0;
    for (count, block_len, choices) in cases() {
        let Some(order) = order(count, block_len, choices) else {
            assert!(choices.last == LastBatch::Fill && (1..choices.lanes).contains(&count), "{count} {choices:?}");
            refused += 1;
            continue;
        };
        let (batch, lanes) = (choices.batch_global, choices.lanes);
        for epoch in [0, 1, 1 << 40] {
            let visited = order.order(epoch);
            let visits = visits(count, &visited);
            if choices.last == LastBatch::Short {
                assert!(visits.iter().all(|&visits| visits == 1), "{count} {choices:?}");
                assert_eq!(order.steps(), u64::from(count.div_ceil(batch)));
                continue;
            }
            assert_eq!(visited.len() as u64, order.steps() * u64::from(batch));
            if choices.last == LastBatch::Drop {
                assert!(visits.iter().all(|&visits| visits <= 1), "{count} {choices:?}");
                assert!(count as usize - visited.len() < batch as usize);
            } else {
                assert!(visits.iter().all(|&visits| visits >= 1), "{count} {choices:?}");
                assert!((visited.len() - count as usize) < batch as usize);
                // The samples that fill the last batch come from the start of the same lane.
                let each = (batch / lanes) as usize;
                for lane in 0..lanes as usize {
                    let of_lane = visited.chunks(batch as usize).flat_map(|batch| &batch[lane * each..][..each]);
                    let of_lane: Vec<u32> = of_lane.copied().collect();
                    let len = count as usize / lanes as usize + usize::from(lane < (count % lanes) as usize);
                    assert!((len..of_lane.len()).all(|at| of_lane[at] == of_lane[at % len]), "{count} {choices:?}");
                }
            }
        }
    }
    assert!(refused > 0);
}

#[test]
fn resuming_at_any_step_gives_the_order_of_an_epoch_that_was_not_interrupted() {
    for (count, block_len, choices) in cases() {
        let Some(order) = order(count, block_len, choices) else { continue };
        let (visited, whole) = (order.order(3), order.whole());
        for step in (0..=order.steps()).rev() {
            let mut epoch = order.epoch(3);
            epoch.seek(step);
            let rest = rest(&mut epoch, &whole);
            assert_eq!(
                rest,
                visited[visited.len().min((step * u64::from(choices.batch_global)) as usize)..],
                "{count} {step} {choices:?}"
            );
            assert_eq!(epoch.step(), order.steps());
        }
        let mut epoch = order.epoch(3);
        epoch.seek(u64::MAX);
        assert_eq!(epoch.next_batch(&whole), None);
    }
}

#[test]
fn ranks_take_the_same_global_batches_whatever_their_number() {
    for (count, block_len, choices) in cases() {
        let Some(order) = order(count, block_len, choices) else { continue };
        let batches: Vec<Vec<u32>> = order.order(5).chunks(choices.batch_global as usize).map(Into::into).collect();
        for world_size in (1..=choices.batch_global).filter(|world_size| choices.batch_global % world_size == 0) {
            let shares: Vec<Share> = (0..world_size).map(|rank| order.share(rank, world_size).unwrap()).collect();
            let mut epochs: Vec<Epoch> = shares.iter().map(|_| order.epoch(5)).collect();
            for batch in &batches {
                let parts = epochs.iter_mut().zip(&shares).map(|(epoch, share)| epoch.next_batch(share).unwrap());
                let parts: Vec<Vec<u32>> = parts.collect();
                let is_whole = batch.len() as u32 == choices.batch_global;
                assert!(is_whole || choices.last == LastBatch::Short);
                assert!(!is_whole || parts.iter().all(|part| part.len() as u32 * world_size == choices.batch_global));
                assert_eq!(parts.concat(), *batch, "{count} {world_size} {choices:?}");
            }
            assert!(epochs.iter_mut().zip(&shares).all(|(epoch, share)| epoch.next_batch(share).is_none()));
        }
    }
}

#[test]
fn without_shuffling_samples_come_in_stored_order() {
    let choices = OrderChoices { batch_global: 10, shuffle: false, last: LastBatch::Fill, ..OrderChoices::default() };
    let stored: Vec<u32> = (0..105).rev().collect();
    let visited = Order::new(blocks(stored.clone(), 7), choices).unwrap().order(9);
    assert_eq!(visited[..105], stored);
    assert_eq!(visited[105..], stored[..5]);
    let short = OrderChoices { last: LastBatch::Short, ..choices };
    assert_eq!(Order::new(blocks(stored.clone(), 7), short).unwrap().order(9), stored);

    let visited = Order::new(blocks(stored.clone(), 7), OrderChoices { lanes: 5, ..choices }).unwrap().order(9);
    let lane: Vec<u32> = visited.chunks(10).flat_map(|batch| &batch[2..4]).copied().collect();
    assert_eq!(lane[..21], stored[21..42]);
}

#[test]
fn epochs_and_seeds_have_orders_of_their_own() {
    let order = |seed, epoch| {
        Order::new(blocks(0..1000, 38), OrderChoices { seed, ..OrderChoices::default() }).unwrap().order(epoch)
    };
    let orders = [order(0, 0), order(0, 1), order(1, 0), order(1, 1)];
    for (idx, one) in orders.iter().enumerate() {
        for other in &orders[..idx] {
            let same = one.iter().zip(other).filter(|(one, other)| one == other).count();
            assert!(same < 10, "{same} of {}", one.len());
        }
    }
}

/// A resume in the middle of a million samples permutes one window, and each rank permutes only the
/// windows of its lane.
#[test]
fn resuming_looks_at_one_window() {
    let choices = OrderChoices { lanes: 4, window_blocks: 64, ..OrderChoices::default() };
    let order = Order::new(blocks(0..1_000_000, 38), choices).unwrap();
    let mut epoch = order.epoch(1);
    epoch.seek(order.steps() / 2);
    assert_eq!(epoch.permuted(), 0);
    let window_len = 38 * 66;
    epoch.next_batch(&order.share(2, 8).unwrap()).unwrap();
    assert!((64 * 38 - 38..=window_len).contains(&epoch.permuted()), "{}", epoch.permuted());
    epoch.batch(&order.whole()).unwrap();
    assert!(epoch.permuted() <= 4 * window_len, "{}", epoch.permuted());

    // Over a whole epoch each window is permuted once.
    let mut epoch = order.epoch(1);
    rest(&mut epoch, &order.whole());
    assert!((998_000..=1_000_000).contains(&epoch.permuted()), "{}", epoch.permuted());
}

/// Windows are announced once, evenly, and before a batch needs them.
#[test]
fn windows_are_announced_before_they_begin() {
    for (lanes, world_size) in [(1, 1), (2, 1), (2, 4), (4, 2)] {
        let choices = OrderChoices { batch_global: 64, lanes, window_blocks: 16, ..OrderChoices::default() };
        let order = Order::new(blocks(0..5000, 19), choices).unwrap();
        let shares: Vec<Share> = (0..world_size).map(|rank| order.share(rank, world_size).unwrap()).collect();
        let (mut epoch, whole) = (order.epoch(0), order.whole());
        let mut announced = vec![0; 5000];
        let (mut late, mut most) = (0, 0);
        for step in 0..order.steps() {
            epoch.seek(step);
            let batch = epoch.batch(&whole).unwrap();
            late += batch.iter().filter(|&&sample| announced[sample as usize] == 0).count();
            for share in &shares {
                let upcoming = epoch.upcoming(share);
                most = most.max(upcoming.len());
                upcoming.iter().for_each(|&sample| announced[sample as usize] += 1);
            }
        }
        assert!(announced.iter().all(|&times| times <= 1), "{lanes} {world_size}");
        let first = announced.iter().filter(|&&times| times == 0).count();
        assert_eq!(late, first, "{lanes} {world_size}: all but the first window of each lane");
        assert!((16 * 18..17 * 20).contains(&(first / lanes as usize)), "{first} {lanes}");
        assert!(most <= 2 * 64 / world_size as usize, "{most} {lanes} {world_size}");
    }
}

/// Exactly the part of the first window that a share reads is announced when reading begins.
#[test]
fn the_window_in_which_reading_begins_is_announced_for_each_share() {
    for (lanes, world_size, first) in [(1, 1, 0), (1, 4, 3), (2, 1, 2), (2, 4, 5), (4, 2, 1)] {
        let choices = OrderChoices { batch_global: 64, lanes, window_blocks: 16, ..OrderChoices::default() };
        let order = Order::new(blocks(0..5000, 19), choices).unwrap();
        for rank in 0..world_size {
            let share = order.share(rank, world_size).unwrap();
            let mut epoch = order.epoch(1);
            epoch.seek(first);
            let announced = epoch.underway(&share);
            let mut read = HashSet::new();
            // Windows have 16 to 17 blocks of 19 samples: these are all batches that begin in the
            // first window of a lane.
            while let Some(batch) = epoch.next_batch(&share) {
                read.extend(batch);
                if epoch.step() * 64 / u64::from(lanes) >= 17 * 20 {
                    break;
                }
            }
            let unique: HashSet<u32> = announced.iter().copied().collect();
            assert_eq!(unique.len(), announced.len(), "each once");
            assert!(unique.is_subset(&read), "{lanes} {world_size} {rank}: all of them are read");
            let of_window = (16 * 19 * lanes / world_size) as usize;
            let done = first as usize * 64 / world_size as usize;
            assert!(
                announced.len() + 20 * lanes as usize >= of_window - done,
                "{} {of_window} {done}",
                announced.len()
            );
        }
    }
}

#[test]
fn invalid_choices_are_rejected_by_name() {
    let default = OrderChoices { batch_global: 12, ..OrderChoices::default() };
    let refused = |choices| Order::new(blocks(0..2, 1), choices).unwrap_err().to_string();
    assert_eq!(refused(OrderChoices { batch_global: 0, ..default }), "batch_global is 0, but must be 1 or more");
    assert_eq!(refused(OrderChoices { window_blocks: 0, ..default }), "window_blocks is 0, but must be 1 or more");
    let error = refused(OrderChoices { lanes: 5, ..default });
    assert_eq!(error, "lanes is 5, but must be a divisor of batch_global, which is 12");
    let error = refused(OrderChoices { lanes: 3, last: LastBatch::Fill, ..default });
    assert_eq!(error, "lanes is 3, but must be at most 2: there are no more samples");

    let order = Order::new(blocks(0..2, 1), default).unwrap();
    let refused = |rank, world_size| order.share(rank, world_size).unwrap_err().to_string();
    assert_eq!(refused(0, 8), "world_size is 8, but must be a divisor of batch_global, which is 12");
    assert_eq!(refused(0, 0), "world_size is 0, but must be a divisor of batch_global, which is 12");
    assert_eq!(refused(4, 4), "rank is 4, but must be below world_size, which is 4");
}

/// Shares belong to their order. With another one they return less, but never panic.
#[test]
fn shares_of_another_order_are_cut() {
    let large = Order::new(blocks(0..100, 3), OrderChoices { batch_global: 50, ..OrderChoices::default() }).unwrap();
    let small = Order::new(blocks(0..100, 3), OrderChoices { batch_global: 10, ..OrderChoices::default() }).unwrap();
    assert_eq!(small.epoch(0).next_batch(&large.whole()).unwrap().len(), 10);
    assert_eq!(small.epoch(0).next_batch(&large.share(1, 2).unwrap()), Some(vec![]));
}
