# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Files on a disk and objects in a bucket: atomic writes, checksums, JSON lines, caches.

Imports only `errors` of this package. Open `files` first; the other files build on it.
`bucket` gives objects in a bucket the methods of `pathlib.Path`.
"""
