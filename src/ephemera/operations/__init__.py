"""What the catalogue gives an operator: documentation, audit, inference, access rules, configuration."""
