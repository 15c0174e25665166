//! Failures and repairs. They come from a table, are drawn at random with given mean times, or are injected during the
//! run.

use crate::config::{FailureRow, Failures, RunConfig};
use crate::queue::{EventClass, EventQueue};
use gangline_model::{ServerId, SimSpan, SimTime};
use gangline_rng::{Purpose, Stream};

/// The last instant at which a server may fail or be repaired, about 250 years after time 0. Jobs that are requeued at
/// this instant still have more than 30 years before the end of simulated time.
pub(crate) const END: SimTime = SimTime(8_000_000_000_000_000_000);

/// Future failures and repairs, as events in the queue.
#[derive(Clone, Debug)]
pub(crate) struct CapacityEvents {
    events: Vec<(ServerId, bool, SimTime)>,
    random: Option<Random>,
}

#[derive(Clone, Debug)]
struct Random {
    mtbf_s: f64,
    mttr_s: f64,
    seed: u64,
    /// Number of draws so far for each server.
    draws: Vec<u32>,
}

impl CapacityEvents {
    pub(crate) fn new(config: &RunConfig, servers: usize) -> Self {
        let mut events = Vec::new();
        let mut random = None;
        match &config.failures {
            Failures::None => {}
            Failures::Table(rows) => {
                // If an outage of a server begins at the instant at which the previous outage ends, the repair must
                // come first.
                let mut rows: Vec<&FailureRow> = rows.iter().collect();
                rows.sort_by_key(|row| row.down);
                for row in rows {
                    events.push((ServerId(row.server), false, row.down));
                    if row.up != SimTime::NEVER {
                        events.push((ServerId(row.server), true, row.up));
                    }
                }
            }
            Failures::Random { mtbf_s, mttr_s } => {
                random = Some(Random {
                    mtbf_s: *mtbf_s,
                    mttr_s: *mttr_s,
                    seed: config.seed,
                    draws: vec![0; servers],
                });
            }
        }
        Self { events, random }
    }

    /// Puts the events that are known at the start into the queue.
    pub(crate) fn fill(&mut self, queue: &mut EventQueue) {
        for (subject, event) in self.events.iter().enumerate() {
            queue.push(event.2, EventClass::Capacity, subject as u32, 0);
        }
        if let Some(random) = &mut self.random {
            for server in 0..random.draws.len() {
                let span = random.next(server);
                self.events
                    .push((ServerId::new(server), false, SimTime::ZERO + span));
                if SimTime::ZERO + span < END {
                    queue.push(SimTime::ZERO + span, EventClass::Capacity, server as u32, 0);
                }
            }
        }
    }

    pub(crate) fn inject(
        &mut self,
        server: ServerId,
        up: bool,
        at: SimTime,
        queue: &mut EventQueue,
    ) {
        self.events.push((server, up, at));
        queue.push(at, EventClass::Capacity, (self.events.len() - 1) as u32, 0);
    }

    /// Returns the server of an event and whether this server is up from now on. If failures are random, the method
    /// also draws the server's next event.
    pub(crate) fn take(
        &mut self,
        subject: u32,
        now: SimTime,
        queue: &mut EventQueue,
    ) -> (ServerId, bool) {
        let (server, up, _) = self.events[subject as usize];
        if let Some(random) = &mut self.random
            && (subject as usize) < random.draws.len()
        {
            let at = now + random.next(server.index());
            self.events[subject as usize] = (server, !up, at);
            // An event at or after `END` is not queued, so the server never changes again.
            if at < END {
                queue.push(at, EventClass::Capacity, subject, 0);
            }
        }
        (server, up)
    }

    pub(crate) fn is_endless(&self) -> bool {
        self.random.is_some()
    }
}

impl Random {
    /// Draws the length of a server's next period, which is at least 1 ns. Even draw numbers are for up periods, odd
    /// draw numbers for down periods.
    fn next(&mut self, server: usize) -> SimSpan {
        let draw = self.draws[server];
        self.draws[server] += 1;
        let mean = if draw.is_multiple_of(2) {
            self.mtbf_s
        } else {
            self.mttr_s
        };
        let stream = Stream::new(self.seed, Purpose::Failures);
        let seconds = stream.draw(server as u64, draw, 0).exponential(mean);
        let span = SimSpan::from_seconds(seconds).unwrap_or(SimSpan(i64::MAX / 4));
        SimSpan(span.0.max(1))
    }
}
