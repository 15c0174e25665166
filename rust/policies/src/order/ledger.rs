//! What a pass with preemption knows of each job: where it stands and under which key. Waiting jobs are in lines,
//! one per demand class.

use crate::order::Key;
use crate::order::line::Line;
use gangline_model::JobId;
use prefetch_index::prefetch_index;

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Stand {
    /// Not here: it has not arrived, has ended, or was just stopped.
    #[default]
    Nowhere,
    /// In the line of its class.
    Waiting,
    /// Admitted by the count, but the placement rule has no place for it: it waits, no longer in the line.
    Promised,
    /// Runs, admitted by the count.
    Running,
    /// Runs although the count does not admit it, on GPUs that the promised jobs cannot use.
    Guest,
}

/// One job, in 24 bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    key_lead: u64,
    key_main: i64,
    class: u16,
    stand: Stand,
}

/// The jobs of a pass with preemption.
#[derive(Debug, Default)]
pub struct Ledger {
    jobs: Vec<Entry>,
    lines: Vec<Line<Key>>,
    /// First job of each line, if known; `None` = it has to be looked up.
    heads: Vec<Option<Key>>,
    /// Number of stale entries of each line; while there are none, the first entry is the head.
    stale: Vec<u32>,
    /// Classes whose line is not empty (stale entries count), ascending.
    busy: Vec<usize>,
    is_busy: Vec<bool>,
    /// Classes that may have another head, but not because of [`Self::pop`]; once each.
    changed: Vec<usize>,
    is_changed: Vec<bool>,
}

impl Ledger {
    /// Nobody is anywhere.
    pub fn new(classes: usize, jobs: usize) -> Self {
        Self {
            jobs: vec![Entry::default(); jobs],
            lines: (0..classes).map(|_| Line::default()).collect(),
            heads: vec![None; classes],
            stale: vec![0; classes],
            busy: Vec::with_capacity(classes),
            is_busy: vec![false; classes],
            changed: Vec::with_capacity(classes),
            is_changed: vec![false; classes],
        }
    }

    /// Where a job stands.
    #[inline]
    pub fn stand(&self, job: JobId) -> Stand {
        self.jobs[job.index()].stand
    }

    /// Asks the memory for the entry of a job that will be looked at soon.
    #[inline]
    pub fn expect(&self, job: JobId) {
        prefetch_index(&self.jobs, job.index());
    }

    /// The class in whose line a job was last.
    #[inline]
    pub fn class(&self, job: JobId) -> usize {
        usize::from(self.jobs[job.index()].class)
    }

    /// Whether a job holds GPUs, after all plans so far.
    #[inline]
    pub fn is_running(&self, job: JobId) -> bool {
        matches!(self.stand(job), Stand::Running | Stand::Guest)
    }

    /// The present key of a job.
    #[inline]
    pub fn key(&self, job: JobId) -> Key {
        let entry = self.jobs[job.index()];
        Key {
            lead: entry.key_lead,
            main: entry.key_main,
            job: job.0,
        }
    }

    /// Notes where a job stands, under which key. Jobs get into a line by [`Self::push`] only.
    #[inline]
    pub fn set(&mut self, key: Key, stand: Stand) {
        let entry = &mut self.jobs[key.job as usize];
        entry.key_lead = key.lead;
        entry.key_main = key.main;
        entry.stand = stand;
    }

    /// Puts a job into its line, or gives a waiting one another key (its old entry becomes stale). Whether
    /// the line may have another head now.
    #[inline]
    pub fn push(&mut self, class: usize, key: Key) -> bool {
        if self.stand(key.job()) == Stand::Waiting {
            self.leave_line(class);
        }
        self.jobs[key.job as usize] = Entry {
            key_lead: key.lead,
            key_main: key.main,
            class: class as u16,
            stand: Stand::Waiting,
        };
        self.lines[class].push(key);
        let is_behind = self.heads[class].is_some_and(|head| head < key);
        if is_behind {
            return false;
        }
        self.note_change(class);
        if !self.is_busy[class] {
            self.is_busy[class] = true;
            let at = self.busy.partition_point(|other| *other < class);
            self.busy.insert(at, class);
            self.heads[class] = Some(key);
        } else if let Some(head) = &mut self.heads[class] {
            *head = key;
        }
        true
    }

    /// The first waiting job of a class.
    #[inline]
    pub fn head(&mut self, class: usize) -> Option<Key> {
        match self.heads[class] {
            Some(head) => Some(head),
            None => self.find_head(class),
        }
    }

    fn find_head(&mut self, class: usize) -> Option<Key> {
        while let Some(key) = self.lines[class].first(|_| true) {
            let is_stale = self.stale[class] > 0
                && !(self.stand(key.job()) == Stand::Waiting && self.key(key.job()) == key);
            if !is_stale {
                self.heads[class] = Some(key);
                return Some(key);
            }
            self.stale[class] -= 1;
            self.lines[class].pop();
        }
        if self.is_busy[class] {
            self.is_busy[class] = false;
            self.busy.retain(|other| *other != class);
        }
        None
    }

    /// Notes that a class may have another head.
    #[inline]
    pub fn note_change(&mut self, class: usize) {
        if !std::mem::replace(&mut self.is_changed[class], true) {
            self.changed.push(class);
        }
    }

    /// Takes out one of the classes that may have another head, but not because of [`Self::pop`].
    #[inline]
    pub fn next_changed(&mut self) -> Option<usize> {
        let class = self.changed.pop()?;
        self.is_changed[class] = false;
        Some(class)
    }

    /// Notes that a waiting job has left its line, from wherever it stood: its entry is stale.
    pub fn leave_line(&mut self, class: usize) {
        self.stale[class] += 1;
        self.heads[class] = None;
        self.note_change(class);
    }

    /// Takes the head of a class out of its line; the caller says where it stands now.
    #[inline]
    pub fn pop(&mut self, class: usize) -> Option<Key> {
        let key = self.head(class)?;
        self.lines[class].pop();
        self.heads[class] = None;
        Some(key)
    }

    /// Classes that may have a waiting job, ascending.
    #[inline]
    pub fn classes(&self) -> &[usize] {
        &self.busy
    }
}
