//! A list of weights with the sum of all before a position: a tree in which each node has the sum of 16 below it.

/// Children of a node. The leaves of a node fill a cache line.
const FAN_OUT: usize = 16;

/// Weights by position, and the sums above them.
pub(super) struct Sums {
    weights: Vec<u32>,
    /// The first level has the sums of 16 weights each, every other level those of 16 sums of the level below.
    levels: Vec<Vec<u64>>,
    total: u64,
}

impl Sums {
    /// Of these weights, and of as many positions with the weight 0 as make `positions`.
    pub(super) fn new(mut weights: Vec<u32>, positions: usize) -> Self {
        weights.resize(positions.next_multiple_of(FAN_OUT), 0);
        let first = weights.chunks(FAN_OUT).map(|group| group.iter().map(|weight| u64::from(*weight)).sum());
        let mut levels: Vec<Vec<u64>> = vec![first.collect()];
        while let Some(level) = levels.last().filter(|level| level.len() > FAN_OUT) {
            levels.push(level.chunks(FAN_OUT).map(|group| group.iter().sum()).collect());
        }
        let total = levels.last().map_or(0, |level| level.iter().sum());
        Self { weights, levels, total }
    }

    #[inline]
    pub(super) fn weight(&self, position: u32) -> u32 {
        self.weights[position as usize]
    }

    /// Sum of all weights.
    #[inline]
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Sum of the weights before a position.
    #[inline]
    pub(super) fn before(&self, position: u32) -> u64 {
        let mut place = position as usize;
        let group = &self.weights[place & !(FAN_OUT - 1)..place];
        let mut sum: u64 = group.iter().map(|weight| u64::from(*weight)).sum();
        for level in &self.levels {
            place /= FAN_OUT;
            // The highest level has one group.
            sum += level[place & !(FAN_OUT - 1)..place].iter().sum::<u64>();
        }
        sum
    }

    #[inline]
    pub(super) fn set(&mut self, position: u32, weight: u32) {
        let before = std::mem::replace(&mut self.weights[position as usize], weight);
        let more = u64::from(weight).wrapping_sub(u64::from(before));
        let mut place = position as usize;
        for level in &mut self.levels {
            place /= FAN_OUT;
            level[place] = level[place].wrapping_add(more);
        }
        self.total = self.total.wrapping_add(more);
    }

    /// Number of positions.
    pub(super) fn positions(&self) -> usize {
        self.weights.len()
    }

    /// The address of a weight, to prefetch it.
    pub(super) fn address(&self, position: u32) -> *const () {
        self.weights.as_ptr().wrapping_add(position as usize).cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_before_every_position_equal_those_of_a_list() {
        for positions in [1, 16, 17, 256, 300, 5000] {
            let mut weights: Vec<u32> = (0..positions / 2).map(|number| number * number).collect();
            let mut sums = Sums::new(weights.clone(), positions as usize);
            weights.resize(positions as usize, 0);
            for (step, position) in (0..positions).map(|step| (step, step * 7919 % positions)) {
                let weight = if step.is_multiple_of(3) { 0 } else { u32::MAX - step };
                weights[position as usize] = weight;
                sums.set(position, weight);
            }
            let mut before = 0;
            for (position, weight) in (0..).zip(&weights) {
                assert_eq!(sums.before(position), before, "{position} of {positions}");
                before += u64::from(*weight);
            }
            assert_eq!(sums.total(), before);
        }
    }
}
