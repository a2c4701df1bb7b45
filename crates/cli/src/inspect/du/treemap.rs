//! A treemap: rectangles within rectangles, whose areas are sizes.

/// A rectangle, in units of the picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

impl Area {
    /// Returns the area without an edge of `edge` at each side, and of `top` at the upper one.
    pub fn inside(self, edge: f64, top: f64) -> Self {
        Self {
            x: self.x + edge,
            y: self.y + top,
            width: (self.width - 2.0 * edge).max(0.0),
            height: (self.height - top - edge).max(0.0),
        }
    }
}

/// Divides an area among sizes, which are sorted, the largest first. Rectangles are as square as they can be made row
/// by row (Bruls, Huizing, van Wijk: Squarified Treemaps, 2000).
pub fn squarified(sizes: &[u64], area: Area) -> Vec<Area> {
    let sum: u64 = sizes.iter().sum();
    let scale = if sum == 0 { 0.0 } else { area.width * area.height / sum as f64 };
    let (mut areas, mut rest, mut at) = (Vec::with_capacity(sizes.len()), area, 0);
    while at < sizes.len() {
        let side = rest.width.min(rest.height);
        // A row grows as long as its worst rectangle becomes no longer.
        let mut count = 1;
        while at + count < sizes.len()
            && worst(&sizes[at..=at + count], side, scale) <= worst(&sizes[at..at + count], side, scale)
        {
            count += 1;
        }
        let row = &sizes[at..at + count];
        let thickness = row.iter().sum::<u64>() as f64 * scale / side.max(f64::MIN_POSITIVE);
        let mut along = 0.0;
        for size in row {
            let len = *size as f64 * scale / thickness.max(f64::MIN_POSITIVE);
            areas.push(match rest.width < rest.height {
                true => Area { x: rest.x + along, y: rest.y, width: len, height: thickness },
                false => Area { x: rest.x, y: rest.y + along, width: thickness, height: len },
            });
            along += len;
        }
        rest = match rest.width < rest.height {
            true => Area { y: rest.y + thickness, height: (rest.height - thickness).max(0.0), ..rest },
            false => Area { x: rest.x + thickness, width: (rest.width - thickness).max(0.0), ..rest },
        };
        at += count;
    }
    areas
}

/// Returns the worst ratio of sides in a row along `side`.
fn worst(row: &[u64], side: f64, scale: f64) -> f64 {
    let sum = row.iter().sum::<u64>() as f64 * scale;
    let (most, least) = (row[0] as f64 * scale, row[row.len() - 1] as f64 * scale);
    let (side, sum) = (side * side, sum * sum);
    (side * most / sum).max(sum / (side * least).max(f64::MIN_POSITIVE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_sizes_and_do_not_overlap() {
        let whole = Area { x: 0.0, y: 0.0, width: 600.0, height: 400.0 };
        let sizes = [600, 600, 400, 300, 200, 200, 100, 1];
        let areas = squarified(&sizes, whole);
        let sum: u64 = sizes.iter().sum();
        for (size, area) in sizes.iter().zip(&areas) {
            let expected = *size as f64 / sum as f64 * 240_000.0;
            assert!((area.width * area.height - expected).abs() < 1.0, "{area:?}");
            assert!(area.x >= -0.01 && area.x + area.width <= 600.01 && area.y + area.height <= 400.01, "{area:?}");
        }
        for (idx, a) in areas.iter().enumerate() {
            for b in &areas[idx + 1..] {
                let apart = a.x + a.width <= b.x + 0.01
                    || b.x + b.width <= a.x + 0.01
                    || a.y + a.height <= b.y + 0.01
                    || b.y + b.height <= a.y + 0.01;
                assert!(apart, "{a:?} {b:?}");
            }
        }
        assert!(squarified(&[], whole).is_empty());
        assert_eq!(squarified(&[0, 0], whole).len(), 2);
    }
}
