# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Package metadata: the one place where dependencies and their bounds are stated."""

from pathlib import Path

from setuptools import find_packages, setup

JAX = ">=0.10,<0.12"  # tested: 0.10 on Python 3.11; 0.10 and 0.11 on Python 3.12

setup(
    name="vit_jax",
    version="0.1.0",
    description="Vision Transformers with JAX: pre-train, transfer, inspect and reproduce.",
    long_description=Path(__file__).with_name("README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11,<3.13",
    packages=find_packages(include=["vit_jax", "vit_jax.*", "configs", "launch", "launch.*"]),
    package_data={"vit_jax.paper": ["*.json"], "vit_jax.reports": ["templates/*"]},
    install_requires=[
        f"jax{JAX}",
        "flax>=0.12,<0.13",
        "optax>=0.2.8,<0.3",
        "ml_collections>=1.1,<2",
        "orbax-checkpoint>=0.12,<0.13",
        "clu>=0.0.12,<0.1",
        "tensorflow-datasets>=4.9.10,<5",
        'tensorflow-cpu>=2.21,<2.22; platform_machine == "x86_64"',
        'tensorflow>=2.21,<2.22; platform_machine != "x86_64"',
        "tensorboard>=2.20,<3",  # needed by clu; TensorFlow 2.21 no longer brings it
        "scikit-learn>=1.5,<2",  # only for the file of digits inside it
        "importlib_resources>=6,<8",  # TFDS needs it to download, but does not say so
        "numpy>=2.0,<3",
        "scipy>=1.14,<2",  # Student's t, and L-BFGS of linear probes
        "ml_dtypes>=0.5,<1",
        "jinja2>=3.1,<4",  # pages
        "matplotlib>=3.10,<4",  # figures of what is inside a model, and charts of pages
        "pillow>=11,<14",  # timm's and Hugging Face's preprocessing is its resizing
        "tifffile>=2025,<2027",  # images of more channels, and of 16 bits in more than one
        "safetensors>=0.5,<1",
        "pyyaml>=6,<7",
        "shtab>=1.8,<2",  # scripts that complete the command line
        "tqdm>=4.66,<5",  # progress on a terminal
        "packaging>=24,<27",  # the doctor compares versions
    ],
    extras_require={
        "cuda12": [f"jax[cuda12]{JAX}"],
        "cuda13": [f"jax[cuda13]{JAX}"],
        "tpu": [f"jax[tpu]{JAX}"],
        "wandb": ["wandb>=0.22,<1"],
        "mlflow": ["mlflow-skinny>=3.5,<4", "sqlalchemy>=2,<3", "alembic>=1.13,<2"],
        "gcs": ["gcsfs>=2025,<2027"],  # workdirs and data in buckets of Google Cloud Storage
        "plan": [f"jax[tpu]{JAX}"],  # the TPU compiler, which needs no TPU
        "hub": ["huggingface_hub>=1,<3"],  # weights by the name hf:OWNER/NAME, and `push`
        # What reads timm's and Hugging Face's formats back, after an export and in tests.
        "export": ["timm>=1.0.20,<2", "torch>=2.6,<3", "transformers>=5,<6"],
        "dev": [
            f"jax[tpu]{JAX}",  # two plans are compiled for TPUs
            "pytest>=9,<10",
            "pytest-xdist>=3.8,<4",
            "gcsfs>=2025,<2027",
            "huggingface_hub>=1,<3",
            "wandb>=0.22,<1",
            "mlflow-skinny>=3.5,<4",
            "sqlalchemy>=2,<3",
            "alembic>=1.13,<2",
            "hypothesis>=6,<7",
            "kubernetes-validate>=1.37,<2",
            "nbclient>=0.10,<1",  # the notebook is run
            "ipykernel>=7,<8",
            "selenium>=4.30,<5",  # pages are opened in chromium, where there is one
            "pytest-timeout>=2.4,<3",  # a test that hangs is named, with the stacks of its threads
            "ruff==0.17.5",
            "pyright==1.1.414",
            "import-linter>=2.16,<3",
        ],
    },
    entry_points={"console_scripts": ["vit_jax=vit_jax.__main__:program"]},
)
