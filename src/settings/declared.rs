//! Declares what a section holds. Each key stands once: its documentation, name, type, kind and default.

/// Makes a plan's struct, the rows of its keys for [`super::format`], and their reading. A field has a row for each group of variants,
/// and none where it is no key. `read by` names a function of the fields, for what is not the value of its key alone.
macro_rules! plan {
    (
        $(#[$outer:meta])*
        pub struct $plan:ident of $variants:expr, rows $rows:ident {
            $(
                #[doc = $doc:literal]
                $field:ident: $type:ty $(where $attribute:meta)? = [$($row:expr),*] $(, read by $read:expr)?;
            )*
        }
    ) => {
        $(#[$outer])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        pub struct $plan {
            $(
                #[doc = $doc]
                $(#[$attribute])?
                pub $field: $type,
            )*
        }

        pub(super) const $rows: &[$crate::settings::format::Key] =
            &[$($($row.named(stringify!($field), $doc).within($variants),)*)*];

        impl $plan {
            /// The plan; `None` where a value was refused.
            pub(super) fn read(fields: &$crate::settings::reader::Fields) -> Option<Self> {
                Some(Self { $($field: $crate::settings::declared::plan!(@read fields, $field $(, $read)?),)* })
            }
        }
    };
    (@read $fields:ident, $field:ident) => { $fields.get(stringify!($field))? };
    (@read $fields:ident, $field:ident, $read:expr) => { $read($fields)? };
}
pub(super) use plan;
