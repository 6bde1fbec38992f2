"""What a release needs: one version, a changelog entry, reproducible builds, installs that work, an SBOM."""
