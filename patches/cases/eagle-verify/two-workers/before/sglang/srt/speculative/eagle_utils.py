def organize_draft_results():
    return None
