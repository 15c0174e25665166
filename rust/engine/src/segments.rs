//! The segments table. A row is added when a segment ends. At the end of the run, the rows are sorted by start, job
//! index, part and server. The table grows without bound, so the available memory is checked before it grows.

use crate::accounts::Segment;
use crate::memory::{SPARE_BYTES, is_available};
use crate::state::State;

/// Number of rows in the first memory allocation; our own choice.
const ROWS_AT_FIRST: usize = 256;

/// The reason why a segment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EndReason {
    /// The job's work is done.
    Finished = 0,
    /// The policy took the GPUs away.
    Preempted = 1,
    /// The policy moved the job.
    Moved = 2,
    /// A server failed.
    Failed = 3,
    /// The rate or the terms of the part changed, for example because of a co-runner, a sub-batch, the share of an
    /// uplink, a new phase, or a quota.
    Retimed = 4,
    /// The run was stopped before the job was done.
    Stopped = 5,
}

/// The process cannot allocate the memory that a table needs.
#[derive(Debug)]
pub(crate) struct NoMemory;

impl From<std::collections::TryReserveError> for NoMemory {
    fn from(_: std::collections::TryReserveError) -> Self {
        Self
    }
}

/// The segments table: one row per segment and server.
#[derive(Clone, Debug, Default)]
pub struct Segments {
    /// Job index.
    pub job: Vec<u32>,
    /// Number of the part; 0 unless the policy forks jobs.
    pub part: Vec<u16>,
    /// Start in nanoseconds.
    pub start_ns: Vec<i64>,
    /// End in nanoseconds.
    pub end_ns: Vec<i64>,
    /// Server.
    pub server: Vec<u32>,
    /// Mask of the slots on that server.
    pub gpu_mask: Vec<u64>,
    /// Tier: 0 server, 1 rack, 2 network.
    pub tier: Vec<u8>,
    /// Rate of the part in iterations per second; a part is a whole gang.
    pub rate: Vec<f64>,
    /// Number of samples per GPU and pass.
    pub sub_batch: Vec<u32>,
    /// Slowdown factor that the co-runners impose on the gang; empty if GPUs are not shared.
    pub xi: Vec<f64>,
    /// Row `i`'s co-runners are `co_runners[co_offset[i]..co_offset[i + 1]]`.
    pub co_offset: Vec<i32>,
    /// Co-runners of the whole gang when the segment opened, in ascending order.
    pub co_runners: Vec<u32>,
    /// [`EndReason`] as a number.
    pub end_reason: Vec<u8>,
}

impl Segments {
    /// Adds one row for each server of a segment.
    pub(crate) fn add(
        &mut self,
        state: &State,
        segment: Segment<'_>,
        reason: EndReason,
    ) -> Result<(), NoMemory> {
        let part = segment.part;
        let details = part.details.as_ref().expect("kept where segments are");
        self.make_room(part.gpus.by_server().len(), details.co_runners.len())?;
        let batch = match details.segment_sub_batch {
            0 => state.jobs().batch_size(segment.job),
            opened => opened,
        };
        for one in part.gpus.by_server() {
            self.job.push(segment.job.0);
            self.part.push(part.number);
            self.start_ns.push(segment.start.0);
            self.end_ns.push(segment.end.0);
            self.server.push(one.server.0);
            self.gpu_mask.push(one.mask);
            self.tier.push(part.tier as u8);
            self.rate.push(part.rate);
            self.sub_batch.push(batch);
            if state.features().shares {
                self.xi.push(part.xi);
            }
            self.co_offset.push(self.co_runners.len() as i32);
            self.co_runners.extend_from_slice(&details.co_runners);
            self.end_reason.push(reason as u8);
        }
        Ok(())
    }

    /// Completes the table at the end of the run.
    pub(crate) fn finish(&mut self) -> Result<(), NoMemory> {
        self.co_offset.push(self.co_runners.len() as i32);
        self.sort()
    }

    /// Reserves memory for rows with this many co-runners each, so that appending them allocates no memory.
    #[inline]
    fn make_room(&mut self, rows: usize, co_runners: usize) -> Result<(), NoMemory> {
        if self.job.capacity() - self.job.len() < rows {
            self.grow(rows)?;
        }
        if co_runners > 0 {
            self.co_runners.try_reserve(rows * co_runners)?;
            if self.co_runners.len() + rows * co_runners > i32::MAX as usize {
                return Err(NoMemory); // There are more co-runners than an offset can count.
            }
        }
        Ok(())
    }

    /// Doubles the capacity of all columns that have one value per row; these columns always have the same capacity.
    #[cold]
    fn grow(&mut self, rows: usize) -> Result<(), NoMemory> {
        let more = rows.max(self.job.len()).max(ROWS_AT_FIRST);
        if self.xi.len() == self.job.len() {
            self.xi.try_reserve(more)?;
        }
        self.part.try_reserve(more)?;
        self.start_ns.try_reserve(more)?;
        self.end_ns.try_reserve(more)?;
        self.server.try_reserve(more)?;
        self.gpu_mask.try_reserve(more)?;
        self.tier.try_reserve(more)?;
        self.rate.try_reserve(more)?;
        self.sub_batch.try_reserve(more)?;
        self.co_offset.try_reserve(more + 1)?; // There is one more offset than rows.
        self.end_reason.try_reserve(more)?;
        self.job.try_reserve(more)?;
        if is_available(SPARE_BYTES) {
            Ok(())
        } else {
            Err(NoMemory)
        }
    }

    /// Sorts the rows by (start, job, part, server). No two rows agree in all four values, because a part has one
    /// segment at a time, and a segment has one row per server. The cost is O(n log n), once in each run that records
    /// segments.
    fn sort(&mut self) -> Result<(), NoMemory> {
        let key = |row: u32| {
            let at = row as usize;
            (
                self.start_ns[at],
                self.job[at],
                self.part[at],
                self.server[at],
            )
        };
        let rows = self.job.len() as u32;
        if (1..rows).all(|row| key(row - 1) <= key(row)) {
            return Ok(());
        }
        let mut order: Vec<u32> = with_room(self.job.len())?;
        order.extend(0..rows);
        order.sort_unstable_by_key(|&row| key(row));
        self.permute_co_runners(&order)?;
        permute(&mut self.job, &order)?;
        permute(&mut self.part, &order)?;
        permute(&mut self.start_ns, &order)?;
        permute(&mut self.end_ns, &order)?;
        permute(&mut self.server, &order)?;
        permute(&mut self.gpu_mask, &order)?;
        permute(&mut self.tier, &order)?;
        permute(&mut self.rate, &order)?;
        permute(&mut self.sub_batch, &order)?;
        if !self.xi.is_empty() {
            permute(&mut self.xi, &order)?;
        }
        permute(&mut self.end_reason, &order)
    }

    fn permute_co_runners(&mut self, order: &[u32]) -> Result<(), NoMemory> {
        if self.co_runners.is_empty() {
            return Ok(()); // All offsets are 0.
        }
        let mut offsets = with_room(self.co_offset.len())?;
        let mut values = with_room(self.co_runners.len())?;
        offsets.push(0);
        for &row in order {
            let at = row as usize;
            let (from, to) = (self.co_offset[at] as usize, self.co_offset[at + 1] as usize);
            values.extend_from_slice(&self.co_runners[from..to]);
            offsets.push(values.len() as i32);
        }
        self.co_offset = offsets;
        self.co_runners = values;
        Ok(())
    }
}

fn permute<T: Copy>(column: &mut Vec<T>, order: &[u32]) -> Result<(), NoMemory> {
    let mut sorted = with_room(order.len())?;
    sorted.extend(order.iter().map(|&row| column[row as usize]));
    *column = sorted;
    Ok(())
}

fn with_room<T>(values: usize) -> Result<Vec<T>, NoMemory> {
    let mut column = Vec::new();
    column.try_reserve_exact(values)?;
    Ok(column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_by_start_job_and_server_and_keep_their_co_runners() {
        let mut table = Segments {
            job: vec![2, 1, 1, 0],
            part: vec![0, 0, 0, 0],
            start_ns: vec![5, 5, 5, 9],
            end_ns: vec![6, 7, 7, 10],
            server: vec![0, 4, 3, 0],
            gpu_mask: vec![1, 2, 4, 8],
            tier: vec![0, 1, 1, 0],
            rate: vec![0.5, 1.5, 1.5, 2.5],
            sub_batch: vec![1, 2, 2, 3],
            xi: vec![1.1, 1.2, 1.2, 1.3],
            co_offset: vec![0, 2, 3, 3, 4],
            co_runners: vec![7, 8, 9, 6],
            end_reason: vec![0, 1, 1, 2],
        };
        table.sort().expect("memory for four rows");
        assert_eq!(table.job, [1, 1, 2, 0]);
        assert_eq!(table.server, [3, 4, 0, 0]);
        assert_eq!(table.gpu_mask, [4, 2, 1, 8]);
        assert_eq!(table.end_ns, [7, 7, 6, 10]);
        let xi: Vec<u64> = table.xi.iter().map(|xi| xi.to_bits()).collect();
        assert_eq!(xi, [1.2_f64, 1.2, 1.1, 1.3].map(f64::to_bits));
        assert_eq!(table.co_offset, [0, 0, 1, 3, 4]);
        assert_eq!(table.co_runners, [9, 7, 8, 6]);
    }

    #[test]
    fn the_columns_of_rows_grow_together() {
        let mut table = Segments::default();
        for rows in [200, 400, 600] {
            table.make_room(200, 3).expect("memory for some rows");
            let room = table.job.capacity();
            assert!(room >= rows);
            assert_eq!(table.part.capacity(), room);
            assert_eq!(table.end_reason.capacity(), room);
            assert!(table.co_offset.capacity() > room);
            assert!(table.co_runners.capacity() >= 600);
            table.job.resize(rows, 0);
            table.part.resize(rows, 0);
            table.end_reason.resize(rows, 0);
            table.co_offset.resize(rows, 0);
        }
        assert!(table.make_room(usize::MAX / 8, 0).is_err());
    }
}
