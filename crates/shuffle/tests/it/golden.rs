//! Orders are the same on every machine, and equal to those of a second program, written from the
//! description of the algorithm alone.

use kiln_shuffle::{LastBatch, Order, OrderChoices};

use crate::blocks;

#[test]
fn orders_are_those_of_the_reference() {
    let golden = include_str!("../golden.txt");
    for line in golden.lines() {
        let (case, expected) = line.split_once(" : ").unwrap();
        let numbers = |text: &str| text.split(' ').map(|word| word.parse::<u64>().unwrap()).collect::<Vec<_>>();
        let [count, block_len, seed, epoch, batch_global, lanes, window_blocks, shuffle, drop_last] = numbers(case)[..]
        else {
            panic!("{case}");
        };
        let blocks = blocks((0..count).map(|at| ((at * 7 + 3) % count) as u32), block_len);
        let choices = OrderChoices {
            seed,
            batch_global: batch_global as u32,
            lanes: lanes as u32,
            window_blocks: window_blocks as u32,
            shuffle: shuffle == 1,
            last: if drop_last == 1 { LastBatch::Drop } else { LastBatch::Fill },
        };
        let order = Order::new(blocks, choices).unwrap().order(epoch);
        assert_eq!(order.into_iter().map(u64::from).collect::<Vec<_>>(), numbers(expected), "{case}");
    }
    assert_eq!(golden.lines().count(), 5);
}
