//! Identifiers. An index, a count and an id are different things, so they have different types.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u32);

        impl $name {
            /// Returns the id of the item at `index` in its table.
            ///
            /// # Panics
            /// Panics if `index` exceeds `u32::MAX`; constructors reject tables with more rows.
            #[inline]
            pub fn new(index: usize) -> Self {
                Self(u32::try_from(index).expect("tables are limited to u32::MAX rows"))
            }

            /// Returns the position of the item in its table.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A job: its row in the [`crate::JobTable`], which is sorted by arrival.
    JobId
}
id! {
    /// A server: its row in the [`crate::ClusterSpec`].
    ServerId
}
id! {
    /// A rack of servers.
    RackId
}
id! {
    /// A GPU type: its row in the [`crate::ClusterSpec`].
    GpuTypeId
}
