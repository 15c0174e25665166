//! All free GPUs as a job at some place in the order sees them, for gangs that may get several servers.
//!
//! A picture is brought up to date when somebody asks: most questions are answered without it.

use super::seats::Seats;
use crate::order::Key;
use gangline_engine::{ClusterView, FreeIndex};
use gangline_model::{GpuSet, GpuTypeId, ServerId};

const TYPE: GpuTypeId = GpuTypeId(0);

/// GPUs that neither the admitted hold nor the guests before `cursor`.
#[derive(Debug)]
pub(super) struct Picture {
    pub(super) free: FreeIndex,
    pub(super) cursor: Key,
    /// Changes that it has taken in: a number of [`Seats::changes_since`]. `None` = nothing yet.
    seen: Option<u64>,
}

/// What would be free now if no job ran.
pub(super) fn index_without_jobs(view: &ClusterView<'_>) -> FreeIndex {
    let servers = (0..view.cluster().servers().len()).map(ServerId::new);
    let down = servers.filter(|&server| !view.is_up(server));
    FreeIndex::with_down(view.cluster(), down)
}

impl Picture {
    /// One that has yet to be drawn.
    pub(super) fn new(view: &ClusterView<'_>, cursor: Key) -> Self {
        Self {
            free: index_without_jobs(view),
            cursor,
            seen: None,
        }
    }

    /// Brings the picture up to date, after [`Seats::refresh`]. `passed` is what guests between the old cursor and the
    /// present one hold.
    pub(super) fn draw<'a>(
        &mut self,
        seats: &Seats,
        firm: &FreeIndex,
        passed: impl Iterator<Item = &'a GpuSet>,
    ) {
        let firm = firm.pool(TYPE);
        let (changes, seen) = seats.changes_since(self.seen.unwrap_or(0));
        let changes = changes.filter(|_| self.seen.is_some());
        self.seen = Some(seen);
        let mut put_right = |at: usize| {
            if firm.is_up(at) {
                let mask = seats.mask(firm, at, self.cursor);
                self.free.sync(ServerId::new(at), mask);
            }
        };
        let Some(changes) = changes else {
            (0..firm.servers().len()).for_each(put_right);
            return;
        };
        for &at in changes {
            put_right(at as usize);
        }
        for part in passed.flat_map(GpuSet::by_server) {
            put_right(part.server.index());
        }
    }
}
