# The trainer in a container; ACCELERATOR is cpu, cuda12, cuda13 or tpu.
#   docker build --build-arg ACCELERATOR=tpu -t REGISTRY/vit_jax . && docker push REGISTRY/vit_jax
FROM python:3.12-slim

ARG ACCELERATOR=cpu
# Where GKE puts the driver of its GPUs, which nothing else in this image names.
ENV LD_LIBRARY_PATH=/usr/local/nvidia/lib64
WORKDIR /opt/vit_jax

# The lock file bounds all packages but those for GPUs and TPUs that jax brings along.
COPY setup.py pyproject.toml README.md LICENSE ./
COPY requirements requirements
COPY vit_jax vit_jax
COPY configs configs
COPY launch launch
RUN case "$ACCELERATOR" in \
      cpu) extras=gcs ;; \
      cuda12 | cuda13 | tpu) extras="gcs,$ACCELERATOR" ;; \
      *) echo "ACCELERATOR=$ACCELERATOR; give cpu, cuda12, cuda13 or tpu" >&2; exit 2 ;; \
    esac \
    && pip install --no-cache-dir --constraint requirements/py312.lock -e ".[$extras]"

ENTRYPOINT []
CMD ["vit_jax", "--help"]
