//! Generations that are lost, in words.

use crate::image::ImageArgs;
use kiln_read::{FoundGenerations, find_generations};

/// Returns what is wrong with the generations of the image, if something is; `None` if one is asked for by its number.
pub fn lost_generations(args: &ImageArgs) -> Option<String> {
    if args.generation.is_some() {
        return None;
    }
    damage_of(&find_generations(&args.source().ok()?).ok()?)
}

/// Describes the damage of an image, if there is some, and says which of its generations are whole.
pub fn damage_of(found: &FoundGenerations) -> Option<String> {
    let damage = found.damage.as_ref()?;
    let numbers: Vec<u32> = found.whole.iter().map(|one| one.number).collect();
    let runs = numbers.chunk_by(|one, next| one + 1 == *next).map(|run| match run {
        [one] => one.to_string(),
        run => format!("{} to {}", run[0], run[run.len() - 1]),
    });
    let runs = runs.collect::<Vec<_>>().join(", ");
    Some(match numbers.len() {
        0 => format!("{damage}; no generation is whole"),
        1 => format!("{damage}; generation {runs} is whole: --generation reads it, kiln repair shows it"),
        _ => format!("{damage}; generations {runs} are whole: --generation reads them, kiln repair shows the newest"),
    })
}
