"""From stored numbers to tables, figures and pages.  Nothing here touches a network."""
