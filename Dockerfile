# The server in a container, on the CPU: docs/guides/scaling.md shows the commands. Runs are mounted, the token comes from the
# environment of `docker run`; neither is part of the image.

FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml constraints.txt requirements.lock README.md LICENSE ./
COPY src ./src
# All packages but torch, whose CPU build is not on PyPI, are checked against the SHA-256 in requirements.lock.
RUN python -m venv /opt/regard \
    && sed -n '/^uv==/,/[^\\]$/p' requirements.lock > uv.txt \
    && python -m pip install --no-cache-dir --no-deps --require-hashes --requirement uv.txt \
    && uv pip install --no-cache --compile-bytecode --python /opt/regard/bin/python --torch-backend=cpu \
        --constraint constraints.txt --constraint requirements.lock --build-constraint requirements.lock .

FROM python:3.12-slim
LABEL org.opencontainers.image.title="regard serve" org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/regard /opt/regard
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin regard
ENV PATH=/opt/regard/bin:$PATH REGARD_CACHE=/tmp/regard PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /runs
EXPOSE 8000
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as web; web.urlopen('http://127.0.0.1:8000/health', timeout=4).read()"]
ENTRYPOINT ["regard", "serve", "--host", "0.0.0.0", "--port", "8000"]
